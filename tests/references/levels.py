"""Levels of rules straight from their definition, to hold the extension against."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from orchestrator.compile.lists.levels import Levels, rule_ordinals, table_boxes
from orchestrator.program.rules import RuleTable

_LOW, _HIGH = 0, 1


def reference_levels(table: RuleTable) -> Levels:
    """Work out levels from the definition: every atom against all atoms before its rule."""
    boxes, ordinals = table_boxes(table), rule_ordinals(table)
    found = np.zeros(len(table), np.int32)
    starts = np.flatnonzero(np.diff(ordinals.astype(np.int64), prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(table)]):
        highest = -1
        for atom in range(start, end):
            apart = (boxes[:start, _LOW] > boxes[atom, _HIGH]) | (boxes[atom, _LOW] > boxes[:start, _HIGH])
            other_flags = (table.word_value[:start] ^ table.word_value[atom]) & table.word_mask[:start]
            meets = ~apart.any(axis=1) & (other_flags & table.word_mask[atom] == 0)
            highest = max(highest, int(found[:start][meets].max(initial=-1)))
        found[start:end] = highest + 1
    return found

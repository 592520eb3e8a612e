"""Columns of objects' attributes in plain Python, to hold the extension against."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from orchestrator.compile.lists.atoms import Indices, Words
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.ports import PortRange

_HALF = (1 << 64) - 1


def reference_distinct(objects: Sequence[Any], *names: str) -> tuple[list[Any], Indices]:
    """Find distinct values and the value of each object."""
    values = list(map(attrgetter(*names), objects))
    parts = values if len(names) > 1 else [(value,) for value in values]
    identities = [tuple(map(id, each)) for each in parts]
    places = {each: place for place, each in enumerate(dict.fromkeys(identities))}
    examples = dict(zip(identities, values, strict=True))
    return [examples[each] for each in places], np.array([places[each] for each in identities], np.int64)


def reference_prefix_words(prefixes: Sequence[Prefix]) -> Words:
    """Write prefixes as words."""
    rows = [
        (each.family, each.network << 32 if each.family is Family.IPV4 else each.network >> 64,
         0 if each.family is Family.IPV4 else each.network & _HALF, each.length)
        for each in prefixes
    ]  # fmt: skip
    return np.array(rows, np.uint64).reshape(-1, 4)


def reference_range_words(ranges: Sequence[PortRange]) -> Words:
    """Write port ranges as words."""
    return np.array([(each.low, each.high) for each in ranges], np.uint64).reshape(-1, 2)

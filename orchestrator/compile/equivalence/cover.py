"""Check that a rule's items lie inside it and have its volume, in C.

Items that are disjoint (`order.py` sees to that), inside their rule and together of its volume are the rule, no more
and no less. A volume is how many combinations of address, address, port, port, word, protocol and kind of fragment
there are; it has up to 311 bits and is counted exactly.
"""

from __future__ import annotations

from orchestrator.compile import _equivalence as native
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.rulesets import Wanted

COVERED, OUTSIDE, WRONG_VOLUME = range(3)


def cover(items: Items, wanted: Wanted) -> tuple[int, int]:
    """Return the first error and its item (`OUTSIDE`) or rule (`WRONG_VOLUME`).

    Items are ordered by `rule`, the place of their rule in `wanted`.
    """
    return native.cover(items, wanted.wants, *wanted.addresses, *wanted.ports, *wanted.words)

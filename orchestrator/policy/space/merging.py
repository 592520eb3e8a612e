"""Many boxes as few: for people, and for formats that have a line for each."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.space.box import LATER, OTHER_AXIS, SETS, WHOLE, Box, with_axis
from orchestrator.policy.spans import Spans


def merged(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Merge disjoint boxes that differ on one axis only, until none do.

    Not always the fewest possible (that is set cover), but what was cut along one axis after the other comes together.
    """
    found = list(boxes)
    before = len(found) + 1
    while len(found) < before:
        before = len(found)
        for axis in reversed(SETS):
            groups: dict[tuple[object, ...], Box] = {}
            for box in found:
                key = (*box[:axis], *box[axis + 1 :])
                like = groups.get(key)
                groups[key] = box if like is None else with_axis(like, axis, _together(like[axis], box[axis]))
            found = list(groups.values())
        found = _halves_joined(found)
    return tuple(found)


def _together(left: int | Spans, right: int | Spans) -> int | Spans:
    """Two sets of one axis, kept the same way, as one."""
    if isinstance(left, int) and isinstance(right, int):
        return left | right
    if isinstance(left, int) or isinstance(right, int):
        raise TypeError(OTHER_AXIS)
    return spans.union((*left, *right))


def _halves_joined(boxes: Iterable[Box]) -> list[Box]:
    """Join IPv6 whole packets and later fragments, which differ on two axes."""
    found = set(boxes)
    for later in [box for box in found if box.family is Family.IPV6 and box.fragments == LATER]:
        whole = next((box for box in found if box.fragments == WHOLE and box[3:] == later[3:]), None)
        if whole is not None and whole.family is Family.IPV6:
            found -= {later, whole}
            found.add(whole._replace(fragments=WHOLE | LATER, protocols=whole.protocols | later.protocols))
    return sorted(found)

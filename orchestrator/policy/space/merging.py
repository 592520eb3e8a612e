"""Many boxes as few: for people, and for formats that have a line for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.space.box import LATER, OTHER_AXIS, SETS, WHOLE, Box, with_axis
from orchestrator.policy.spans import Span


def merge_boxes(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Merge disjoint boxes that differ on one axis only, until none do.

    Not always the fewest possible (that is set cover), but what was cut along one axis after the other comes together.
    """
    found = list(boxes)
    before = len(found) + 1
    while len(found) < before:
        before = len(found)
        for axis in reversed(SETS):
            groups: dict[tuple[object, ...], list[Box]] = {}
            for box in found:
                groups.setdefault((*box[:axis], *box[axis + 1 :]), []).append(box)
            found = [_unite_boxes(boxes, axis) for boxes in groups.values()]
        found = _halves_joined(found)
    return tuple(found)


def _unite_boxes(boxes: Sequence[Box], axis: int) -> Box:
    """Return boxes that differ on one axis only as one."""
    if len(boxes) == 1:
        return boxes[0]
    sets = [box[axis] for box in boxes]
    bits, members = 0, list[Span]()
    for each in sets:
        if isinstance(each, int):
            bits |= each
        else:
            members += each
    if bits and members:
        raise TypeError(OTHER_AXIS)
    return with_axis(boxes[0], axis, spans.union(members) if members else bits)


def _halves_joined(boxes: Iterable[Box]) -> list[Box]:
    """Join IPv6 whole packets and later fragments, which differ on two axes."""
    found = set(boxes)
    for later in [box for box in found if box.family is Family.IPV6 and box.fragments == LATER]:
        whole = next((box for box in found if box.fragments == WHOLE and box[3:] == later[3:]), None)
        if whole is not None and whole.family is Family.IPV6:
            found -= {later, whole}
            found.add(whole._replace(fragments=WHOLE | LATER, protocols=whole.protocols | later.protocols))
    return sorted(found)

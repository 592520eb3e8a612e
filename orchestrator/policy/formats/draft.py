"""A packet filter's line while it is read: its axes so far, and their boxes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import CARRIED
from orchestrator.policy.formats.lineboxes import Axes, boxes_of_axes, narrow
from orchestrator.policy.formats.results import NOT_SAID, Interfaces
from orchestrator.policy.space import ALL_BYTES, WHOLE, Box
from orchestrator.policy.spans import Spans

_TRANSPORT_AXES = frozenset(each.axis for each in CARRIED)
_CARRIERS = {
    family: {
        each.axis: sum(1 << protocol for protocol in range(256) if each.is_carried(family, protocol))
        for each in CARRIED
    }
    for family in Family
}
"""For each axis past the IP header, the protocols whose header has it, as bits."""

MOST_ALTERNATIVES = 65_536
"""A line that asks for either of some things may come to so many combinations."""


@dataclass(slots=True)
class Draft:
    """A line as far as it has been read."""

    family: Family
    interfaces: Interfaces = NOT_SAID
    axes: Axes = field(default_factory=dict)
    either: list[tuple[Axes, ...]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    states: frozenset[str] | None = None
    transport: int | None = None
    target: str = ""
    goto: bool = False
    comment: str = ""
    is_elsewhere: bool = False
    """Whether it is about interfaces that packets do not take: then it matches nothing."""

    def narrow_interface(self, known: str, patterns: Iterable[str], any_more: str, *, negated: bool) -> None:
        """Narrow to packets of some interfaces, whose names may end in `any_more`.

        `known` is the interface of the packets.

        Raises BadInput where that is not known.
        """
        if not known:
            raise BadInput(
                "the interface a packet takes cannot be seen here; --in-interface and --out-interface tell it"
            )
        found = any(
            known.startswith(each[: -len(any_more)]) if each.endswith(any_more) else known == each for each in patterns
        )
        self.is_elsewhere |= found == negated

    def narrow(self, axis: str, members: int | Spans) -> None:
        """Keep only these members on an axis."""
        narrow(self.axes, axis, members)


def boxes_of_draft(draft: Draft) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The boxes that a draft surely matches and those it may match besides.

    Narrowings that its protocol does not have are taken back and become doubts. Raises TooLarge.
    """
    if draft.is_elsewhere:
        draft.reasons.clear()
        return (), ()
    axes = dict(draft.axes)
    protocols = axes.get("protocols", ALL_BYTES)
    if draft.transport is not None:
        if protocols != 1 << draft.transport:
            draft.reasons.append("it looks into the header of one protocol without naming just that protocol")
        narrow(axes, "fragments", WHOLE)
    alternatives = [axes]
    for choices in draft.either:
        if len(alternatives) * len(choices) > MOST_ALTERNATIVES:
            raise TooLarge(f"a line stands for more than {MOST_ALTERNATIVES} combinations of what it lists")
        alternatives = [_merge_axes(first, second) for first in alternatives for second in choices]
    if any(_looks_too_far(chosen, draft.family) for chosen in alternatives):
        draft.reasons.append("this protocol's header cannot be looked into here")
        alternatives = [
            {axis: chosen[axis] for axis in chosen if axis not in _TRANSPORT_AXES} for chosen in alternatives
        ]
    found = [boxes_of_axes(chosen, draft.family) for chosen in alternatives]
    return tuple(box for sure, _ in found for box in sure), tuple(box for _, hidden in found for box in hidden)


def _looks_too_far(axes: Axes, family: Family) -> bool:
    """Whether axes narrow what no header of their protocols has."""
    narrowed = _TRANSPORT_AXES.intersection(axes)
    return bool(narrowed) and not narrowed <= _allowed_axes(axes.get("protocols", ALL_BYTES), family)


def _allowed_axes(protocols: int | Spans, family: Family) -> frozenset[str]:
    """The axes past the IP header that a box of these protocols may narrow."""
    named = protocols if isinstance(protocols, int) else ALL_BYTES
    return frozenset(axis for axis, carriers in _CARRIERS[family].items() if named and not named & ~carriers)


def _merge_axes(first: Axes, second: Axes) -> Axes:
    both = dict(first)
    for axis, members in second.items():
        narrow(both, axis, members)
    return both

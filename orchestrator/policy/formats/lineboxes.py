"""The axes that a line narrows, and the boxes of packet space that result.

Shared by the readers of line formats.

Later fragments of IPv6 show no protocol: a line that names a protocol, but nothing behind it, surely matches whole
packets and first fragments, and may match any later fragment between its addresses.
"""

from __future__ import annotations

from typing import TypeAlias

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import DESTINATION, DSCP, FRAGMENTS, ICMP_CODE, ICMP_TYPE, SOURCE
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.space import LATER, WHOLE, Box, everything
from orchestrator.policy.spans import Spans

Axes: TypeAlias = dict[str, int | Spans]
"""The axes narrowed so far: the set for each axis of a Box, by the axis' name."""


def icmp_axes(kind: int, code: int | None = None) -> Axes:
    """Return the axes of a line that asks for an ICMP type and perhaps code."""
    axes: Axes = {FRAGMENTS.axis: WHOLE, ICMP_TYPE.axis: 1 << kind}
    return axes if code is None else {**axes, ICMP_CODE.axis: 1 << code}


_SHOWN = (SOURCE.axis, DESTINATION.axis, DSCP.axis)
"""The axes that a later fragment of IPv6 shows."""

HIDDEN_FRAGMENTS = "later fragments of IPv6 packets do not show their protocol"


def narrow(axes: Axes, axis: str, members: int | Spans) -> None:
    """Keep only these members on an axis, among those that it still has."""
    before = axes.get(axis)
    if before is None:
        axes[axis] = members
    elif isinstance(before, int) and isinstance(members, int):
        axes[axis] = before & members
    elif not isinstance(before, int) and not isinstance(members, int):
        axes[axis] = spans.intersect(before, members)


def boxes_of_axes(axes: Axes, family: Family) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The boxes that surely match, and those that may match besides (later fragments of IPv6)."""
    if family is Family.IPV4 or not _may_be_hidden(axes) or axes.get("fragments") == WHOLE:
        return _make_boxes(axes, family), ()
    shown = {axis: members for axis, members in axes.items() if axis in _SHOWN}
    later = _make_boxes({**shown, "protocols": 1 << IPV6_FRAGMENT, "fragments": LATER}, family)
    return (() if axes.get("fragments") == LATER else _make_boxes({**axes, "fragments": WHOLE}, family)), later


def _may_be_hidden(axes: Axes) -> bool:
    """Whether the axes ask for a protocol that a later IPv6 fragment can hide."""
    named = axes.get("protocols")
    return isinstance(named, int) and any(
        named >> number & 1 for number in range(256) if number not in NO_PACKETS[Family.IPV6]
    )


def _make_boxes(axes: Axes, family: Family) -> tuple[Box, ...]:
    whole = everything(family)
    found = whole.intersect(whole._replace(**axes))  # type: ignore[arg-type]
    return () if found is None else (found,)

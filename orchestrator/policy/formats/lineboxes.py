"""The axes that a line narrows, and the boxes of packet space that result.

Shared by the readers of line formats.

Later fragments of IPv6 show no protocol: a line that names a protocol, but nothing behind it, surely matches whole
packets and first fragments, and may match any later fragment between its addresses.

ASA firewalls and the clouds decide about whole packets (`by_version`): they put fragments together, or decide about
later fragments as about the first one; without its first fragment no packet is ever put together. So a line that names
a protocol is about whole packets in both IP versions there, and what a line with ports denies, it denies by the first
fragment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.fields import DESTINATION, DSCP, FRAGMENTS, ICMP_CODE, ICMP_TYPE, SOURCE
from orchestrator.policy.formats.assemble import Clause
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.protocols import IPV6_FRAGMENT, only_family
from orchestrator.policy.space import ALL_ADDRESSES, LATER, WHOLE, Box, everything
from orchestrator.policy.spans import Span, Spans, union

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


Sides = Mapping[Family, Spans]
"""The addresses of one side of a line, by IP version; a version that is not there has none."""

EVERYWHERE: Sides = ALL_ADDRESSES


def sides_of(pairs: Iterable[tuple[Family, Span]]) -> Sides:
    """Spans of both IP versions as the addresses of a side."""
    found: dict[Family, list[Span]] = {}
    for family, span in pairs:
        found.setdefault(family, []).append(span)
    return {family: union(spans) for family, spans in found.items()}


def sides_of_prefixes(prefixes: Iterable[Prefix]) -> Sides:
    """Prefixes of both IP versions as the addresses of a side."""
    return sides_of((prefix.family, Span(prefix.network, prefix.last)) for prefix in prefixes)


def by_version(line: Clause, services: Sequence[Axes], source: Sides, destination: Sides) -> list[Clause]:
    """Return a clause for each IP version in which a line has packets.

    The line is between two sides, about any of some services.

    `line` is the clause but for its boxes. A service is what is narrowed besides addresses; one whose protocol belongs
    to the other IP version has no packets. A doubtful line is one clause, for it is one loss.
    """
    found = [boxes for family in Family if (boxes := _make_boxes_between(services, source, destination, family))]
    if line.doubts:
        return [replace(line, sure=(), maybe=tuple(itertools.chain.from_iterable(found)))] if found else []
    return [replace(line, sure=boxes, maybe=boxes) for boxes in found]


def _make_boxes_between(services: Sequence[Axes], source: Sides, destination: Sides, family: Family) -> tuple[Box, ...]:
    if family not in source or family not in destination:
        return ()
    between: Axes = {"source": source[family], "destination": destination[family]}
    here = (axes for axes in services if only_family(protocol_of(axes)) in (None, family))
    return tuple(dict.fromkeys(box for axes in here for box in boxes_of_axes({**axes, **between}, family)[0]))


def protocol_of(axes: Axes) -> int | None:
    """The one protocol that the axes name, None for several."""
    protocols = axes.get("protocols")
    return protocols.bit_length() - 1 if isinstance(protocols, int) and protocols.bit_count() == 1 else None

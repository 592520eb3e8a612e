"""Split lists for both IP versions by version.

Used for systems that decide about whole packets: ASA firewalls and the clouds.

They put fragments together, or decide about later fragments as about the first one; without its first fragment no
packet is ever put together. So a line that names a protocol is about whole packets in both IP versions here, and what a
line with ports denies, it denies by the first fragment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.assemble import Clause
from orchestrator.policy.formats.lineboxes import Axes, boxes_of_axes
from orchestrator.policy.protocols import only_family
from orchestrator.policy.space import ALL_ADDRESSES, Box
from orchestrator.policy.spans import Span, Spans, union

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
    found = [boxes for family in Family if (boxes := _make_boxes(services, source, destination, family))]
    if line.doubts:
        return [replace(line, sure=(), maybe=tuple(itertools.chain.from_iterable(found)))] if found else []
    return [replace(line, sure=boxes, maybe=boxes) for boxes in found]


def _make_boxes(services: Sequence[Axes], source: Sides, destination: Sides, family: Family) -> tuple[Box, ...]:
    if family not in source or family not in destination:
        return ()
    between: Axes = {"source": source[family], "destination": destination[family]}
    here = (axes for axes in services if only_family(protocol_of(axes)) in (None, family))
    return tuple(dict.fromkeys(box for axes in here for box in boxes_of_axes({**axes, **between}, family)[0]))


def protocol_of(axes: Axes) -> int | None:
    """The one protocol that the axes name, None for several."""
    protocols = axes.get("protocols")
    return protocols.bit_length() - 1 if isinstance(protocols, int) and protocols.bit_count() == 1 else None

"""Boxes of packet space as atoms: what the encoder makes flow entries of.

A rule becomes atoms by its own words (`atoms.py`). A part of a rule has none: it is what is left of it, or what it
shares with another. So its box is taken apart here: one atom for each combination of a protocol, a prefix of either
side, a range of either side's ports (or an ICMP type and code), and a word of masked bits. They are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.express import prefixes_of
from orchestrator.policy.maskedword import count_rows, words_of_box
from orchestrator.policy.ports import PortRange, masks
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.space import ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box
from orchestrator.policy.spans import Span
from orchestrator.program.rules import (
    ANY_BYTE,
    COLUMNS,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_NOT_LATER,
    RuleTable,
)

MANY = 1024
"""Nobody asks how many more rows than this a box takes."""

_HALF = (1 << 64) - 1
_NAMES = tuple(name for name in COLUMNS if name not in ("order", "number", "tenant", "direction", "action", "log"))
_Row = tuple[int, ...]
"""What an atom matches, in the order of `_NAMES`."""


def box_atoms(boxes: Sequence[Box], most: int) -> RuleTable | None:
    """Return the atoms of boxes, or None beyond `most`.

    `order` is each atom's box.

    Numbers, tenants, directions, actions and logs are left at zero.
    """
    found: list[tuple[int, _Row]] = []
    for number, box in enumerate(boxes):
        if len(found) + _at_least(box) > most:
            return None
        found += [(number, row) for part in _one_kind(box) for row in _make_rows(part)]
    if len(found) > most:
        return None
    columns = {name: np.zeros(len(found), dtype) for name, dtype in COLUMNS.items()}
    columns["order"] = np.array([number for number, _ in found], np.uint32)
    for place, name in enumerate(_NAMES):
        columns[name] = np.array([row[place] for _, row in found], COLUMNS[name])
    return RuleTable(**columns)


def rows_taken(box: Box) -> int:
    """How many flow entries a box takes; more than MANY counts as that."""
    return MANY if _at_least(box) > MANY else min(sum(map(_rows_of_kind, _one_kind(box))), MANY)


def _rows_of_kind(box: Box) -> int:
    """Count a box's rows from its parts, without combining them."""
    sides = prod(len(prefixes_of(side, box.family)) for side in (box.source, box.destination))
    ports = prod(sum(map(_count_masks, ranges)) for ranges in (box.source_ports, box.destination_ports))
    past = prod(map(_count_choices, box.icmp)) * sum(count_rows(mask) for _, mask in words_of_box(box))
    return len(_list_protocols(box)) * sides * ports * past


def _count_choices(members: int) -> int:
    return 1 if members == ALL_BYTES else members.bit_count()


def _count_masks(ports: Span) -> int:
    return len(masks(PortRange(ports.low, ports.high)))


def _at_least(box: Box) -> int:
    """A lower bound of how many atoms a box takes, told without making them."""
    return prod(map(len, (box.source, box.destination, box.source_ports, box.destination_ports)))


def _one_kind(box: Box) -> Iterator[Box]:
    """Split an IPv6 box of several protocols and later fragments.

    A later fragment's protocol is its header's.
    """
    both = box.family is Family.IPV6 and box.fragments == WHOLE | LATER and box.protocols != ALL_BYTES
    if not both:
        yield box
        return
    fragments = 1 << IPV6_FRAGMENT
    yield box._replace(fragments=LATER, protocols=fragments)
    yield box._replace(fragments=WHOLE, protocols=box.protocols & ~fragments)


def _make_rows(box: Box) -> Iterator[_Row]:
    """Yield the atoms of a box: a prefix and a port range a side."""
    sides = [[_side(prefix) for prefix in prefixes_of(side, box.family)] for side in (box.source, box.destination)]
    ports = list(product(box.source_ports, box.destination_ports))
    icmp = list(product(*map(_members, box.icmp)))
    words = words_of_box(box)
    for protocol in _list_protocols(box):
        fragments = _fragments(box, protocol)
        for source, destination in product(*sides):
            for (from_ports, to_ports), (kind, code), word in product(ports, icmp, words):
                ended = (*source, *destination, *from_ports, *to_ports)
                yield (int(box.family), protocol, *ended, kind, code, *word, fragments)


def _side(prefix: Prefix) -> tuple[int, int, int]:
    """Return the halves of a network, left-aligned in 128 bits, and its length."""
    network = prefix.network << (96 if prefix.family is Family.IPV4 else 0)
    return network >> 64, network & _HALF, prefix.length


def _list_protocols(box: Box) -> list[int]:
    if box.family is Family.IPV6 and box.fragments == LATER:
        return [ANY_BYTE]  # all of them have the one protocol that says so
    named = box.protocols
    if box.family is Family.IPV6 and box.fragments == WHOLE:
        named |= 1 << IPV6_FRAGMENT  # which whole packets do not have
    if named == ALL_BYTES:
        return [ANY_BYTE]
    return _members(box.protocols)


def _fragments(box: Box, protocol: int) -> int:
    """Return an atom's match on fragments.

    In IPv6 a protocol implies a whole packet.
    """
    if box.fragments == LATER:
        return FRAG_LATER
    looks_at = (box.source_ports, box.destination_ports, box.tcp_flags, *box.icmp)
    past_the_header = looks_at != (ALL_PORTS, ALL_PORTS, ALL_BYTES, ALL_BYTES, ALL_BYTES)
    if past_the_header or (box.fragments == WHOLE and (box.family is Family.IPV4 or protocol == ANY_BYTE)):
        return FRAG_NOT_LATER
    return FRAG_ANY


def _members(members: int) -> list[int]:
    """The members of a set of bytes; of the full one only that it is."""
    return [ANY_BYTE] if members == ALL_BYTES else [number for number in range(256) if members >> number & 1]

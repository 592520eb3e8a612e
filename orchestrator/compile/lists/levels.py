"""Levels: which rules need an order, and how few priorities say it.

The problem
    In a list the first rule that matches decides. A switch knows no list, only priorities, and between two entries of
    equal priority that both match it chooses as it likes (Open vSwitch: by the history of its tables). One priority a
    rule would be right, but then a rule put in at the top moves every other, and the table can hold only some 29,700.
    Rules need an order only where a packet can meet both of them.

The levels
    Two rules *overlap* when some packet matches both. Draw a line from each rule to every later one that overlaps it:

        level 0    0: 10.0.0.0/8 tcp 80    1: 10.1.0.0/16 udp         no packet matches both: they share a level
                      |       |                 |       |
        level 1       |      2: 10.1.2.0/24 any ------- |             overlaps 0 and 1
                      |                 |               |
        level 2       +-------- 3: 10.0.0.0/8 any ------+             overlaps all three

    The level of a rule is the length of the longest path that ends in it: 0 if no earlier rule overlaps it, else one
    more than the highest level among the earlier rules that do. Its priority is ``top - level``.

    Invariants (laws in the tests): of two overlapping rules the earlier has the lower level, so the higher priority;
    rules of one level are pairwise disjoint, so their order does not matter; no numbering with this property uses fewer
    levels. Every overlap counts, also of rules that agree in their action: then the entry that a packet hits is its
    first match, and the hits of every rule are exact.

    A rule is a union of boxes (atoms); rules overlap if any of their atoms do, and all atoms of a rule have its level.

How it is computed
    Everything an atom matches becomes an interval of integers on eight axes, except the word (value under mask,
    `fields.WORD`), which is looked at last:

        source, destination       prefixes as intervals of IPv4 addresses; where there are others, of ranks among the
                                  list's own addresses, IPv6 behind IPv4
        ports                     the ICMP type and code in their place, as one excludes the other
        protocol, fragments, direction, tenant

    Two atoms overlap if they do on every axis. Rules are taken in list order; "the highest level among the earlier
    atoms that overlap this one" is a search in a packed R-tree (Roussopoulos and Leifker 1985) over all atoms, sorted
    so that boxes of like place are neighbours. Its nodes remember the highest level below them, and a search
    goes only where it can still find a higher one; so a rule that overlaps thousands looks at a handful.

    The search is in C (`_native/levels.c`); `tests/references/levels.py` says the same in a few lines.

After a change
    When rules come, go or are put elsewhere, most levels stay: a later rule moves only if it overlaps one that moved,
    came or went, and that one either pushes it down now or was what held it where it is. `_native/follow.h` follows
    these moves in list order through an index of the list's atoms. Law: what it finds are the levels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _levels
from orchestrator.compile.openflow.fewrules import Atom
from orchestrator.program.rules import EGRESS, FRAG_LATER, FRAG_NOT_LATER, RuleTable

Levels = npt.NDArray[np.int32]
Boxes = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Atoms = npt.NDArray[np.uint64]
"""(n, ATOM_WORDS): a packed atom a row, for the extension to read; here they are only moved about."""

_SOURCE, _DESTINATION, _SOURCE_PORTS, _DESTINATION_PORTS, _PROTOCOL, _FRAGMENTS, _DIRECTION, _TENANT = range(8)
_LOW, _HIGH = 0, 1
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


def levels(table: RuleTable) -> Levels:
    """The level of every atom's rule. Rules of different tenants or directions never overlap.

    `table` is ordered by `order` within each tenant, the atoms of a rule side by side.
    """
    boxes = table_boxes(table)
    words = np.stack((table.word_value, table.word_mask), axis=1)
    tree_order = _by_place(boxes, table)
    sequence = np.empty(len(table), np.uint32)
    sequence[tree_order] = np.arange(len(table), dtype=np.uint32)
    found = np.zeros(len(table), np.int32)
    _levels.levels(boxes[tree_order], words[tree_order], sequence, rule_ordinals(table), found)
    return found


_ATOM = np.dtype(
    [
        ("address", np.uint64, (4,)),
        ("port", np.uint16, (4,)),
        ("length", np.uint8, (2,)),
        ("family", np.uint8),
        ("direction", np.uint8),
        ("protocol", np.uint8, (2,)),
        ("fragments", np.uint8, (2,)),
        ("word", np.uint16, (2,)),
        ("unused", np.uint8, (4,)),
    ]
)
"""`struct atom` of the extension (`_native/atom.h`)."""

_ATOM_OCTETS = struct.Struct("=4Q4H2BBB2B2B2H4x")
"""The same for one atom."""

ATOM_WORDS = _ATOM.itemsize // 8


def pack_atoms(table: RuleTable) -> Atoms:
    """The atoms of one list as the extension reads them."""
    rows = np.zeros(len(table), _ATOM)
    for place, column in enumerate((table.src_hi, table.src_lo, table.dst_hi, table.dst_lo)):
        rows["address"][:, place] = column
    source_ports = _join_ports_and_icmp(table.sp_lo, table.sp_hi, table.icmp_type)
    destination_ports = _join_ports_and_icmp(table.dp_lo, table.dp_hi, table.icmp_code)
    for place, ports in enumerate((*source_ports, *destination_ports)):
        rows["port"][:, place] = ports
    rows["length"][:, 0], rows["length"][:, 1] = table.src_len, table.dst_len
    rows["family"], rows["direction"] = table.family, table.direction
    rows["protocol"][:, _LOW], rows["protocol"][:, _HIGH] = _find_protocols(table)
    rows["fragments"][:, _LOW], rows["fragments"][:, _HIGH] = _find_fragments(table)
    rows["word"][:, 0], rows["word"][:, 1] = table.word_value, table.word_mask
    return rows.view(np.uint64).reshape(len(table), ATOM_WORDS)


def few_packed(atoms: Iterable[Atom]) -> Atoms:
    """Pack a few atoms that come as values."""
    return np.frombuffer(b"".join([_atom_bytes(each) for each in atoms]), np.uint64).reshape(-1, ATOM_WORDS)


def _atom_bytes(atom: Atom) -> bytes:
    kind, code = atom.icmp_type, atom.icmp_code
    return _ATOM_OCTETS.pack(
        atom.src_hi, atom.src_lo, atom.dst_hi, atom.dst_lo,
        *((atom.sp_lo, atom.sp_hi) if kind < 0 else (kind, kind)),
        *((atom.dp_lo, atom.dp_hi) if code < 0 else (code, code)),
        atom.src_len, atom.dst_len, atom.family, atom.direction,
        *((0, 255) if atom.protocol < 0 else (atom.protocol, atom.protocol)),
        atom.frag == FRAG_LATER, atom.frag != FRAG_NOT_LATER, atom.word_value, atom.word_mask,
    )  # fmt: skip


def turns(boxes: Boxes, words: npt.NDArray[np.uint16], order: Integers, kinds: Integers, classes: int) -> Levels:
    """Compute levels where classes of boxes alternate.

    Class i has the levels i, i + `classes`, i + 2 `classes`, ...

    A box gets the lowest of its class that is not below that of any earlier box it overlaps.

    `boxes` (n, 2, 8) as `table_boxes` makes them and `words` (n, 2) are in list order, `order` puts neighbours
    together.
    """
    sequence = np.empty(len(boxes), np.uint32)
    sequence[order] = np.arange(len(boxes), dtype=np.uint32)
    found = np.zeros(len(boxes), np.int32)
    each = np.arange(len(boxes), dtype=np.uint32)
    columns = np.ascontiguousarray(boxes[order]), np.ascontiguousarray(words[order])
    _levels.levels(*columns, sequence, each, found, kinds.astype(np.uint32), classes)
    return found


def rule_ordinals(table: RuleTable) -> npt.NDArray[np.uint32]:
    """Consecutive numbers of the rules, one a row: equal for the atoms of a rule."""
    changes = (np.diff(table.order) != 0) | (np.diff(table.tenant) != 0)
    return np.concatenate(([0], np.cumsum(changes))).astype(np.uint32)[: len(table)]


def table_boxes(table: RuleTable) -> Boxes:
    """Return the bounds of every atom, (n, 2, 8): lowest and highest values by axis."""
    boxes = np.empty((len(table), 2, 8), np.int32)
    axes = (
        _ranks(table.family, table.src_hi, table.src_lo, table.src_len),
        _ranks(table.family, table.dst_hi, table.dst_lo, table.dst_len),
        _join_ports_and_icmp(table.sp_lo, table.sp_hi, table.icmp_type),
        _join_ports_and_icmp(table.dp_lo, table.dp_hi, table.icmp_code),
        _find_protocols(table),
        _find_fragments(table),
        (table.direction, table.direction),
        (np.unique(table.tenant, return_inverse=True)[1],) * 2,
    )
    for axis, (low, high) in enumerate(axes):
        boxes[:, _LOW, axis] = low
        boxes[:, _HIGH, axis] = high
    return boxes


def _find_protocols(table: RuleTable) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    return np.where(table.protocol < 0, 0, table.protocol), np.where(table.protocol < 0, 255, table.protocol)


def _find_fragments(table: RuleTable) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    return table.frag == FRAG_LATER, table.frag != FRAG_NOT_LATER


def _join_ports_and_icmp(
    low: npt.NDArray[np.uint16], high: npt.NDArray[np.uint16], icmp: npt.NDArray[np.int16]
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    return np.where(icmp < 0, low, icmp), np.where(icmp < 0, high, icmp)


def _ranks(
    family: npt.NDArray[np.uint8],
    upper: npt.NDArray[np.uint64],
    lower: npt.NDArray[np.uint64],
    length: npt.NDArray[np.uint8],
) -> tuple[Integers, Integers]:
    """Turn prefixes into intervals of ranks among the starts of prefixes.

    The lowest and the highest rank inside each.

    Two prefixes meet exactly if one's first address lies in the other, so the starts are all the points that count.
    """
    upper_end = upper | _ones_below(np.minimum(length, 64))
    six = family == 6
    if not six.any():  # then addresses are as good as ranks: 32 bits, here counted from the middle
        return (upper >> 32).astype(np.int64) - (1 << 31), (upper_end >> 32).astype(np.int64) - (1 << 31)
    lower_end = lower | _ones_below(np.maximum(length, 64) - 64)
    upper_values = np.unique(np.concatenate((upper, upper_end)))
    lower_values = np.unique(np.concatenate((lower, lower_end)))
    version = six.astype(np.uint64) << np.uint64(63)

    def join_halves(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        ranked = np.searchsorted(upper_values, high).astype(np.uint64) << np.uint64(32)
        found: npt.NDArray[np.uint64] = version | ranked | np.searchsorted(lower_values, low).astype(np.uint64)
        return found

    start, end = join_halves(upper, lower), join_halves(upper_end, lower_end)
    starts = np.unique(start)
    return np.searchsorted(starts, start), np.searchsorted(starts, end, "right") - 1


def _ones_below(length: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """64-bit words with ones behind the first `length` bits (0..64)."""
    ones = np.full(len(length), _ONES, np.uint64)
    np.right_shift(ones, np.minimum(length, 63), out=ones)
    ones[length == 64] = 0
    return ones


def _by_place(boxes: Boxes, table: RuleTable) -> npt.NDArray[np.intp]:
    """Order boxes for the tree: near ones together, those open to all addresses apart.

    The tenant's own side comes first, for there the prefixes are narrow. Boxes of the same addresses follow a Z-curve
    through their ports.
    """
    egress, low = table.direction == EGRESS, boxes[:, _LOW]
    source, destination = low[:, _SOURCE], low[:, _DESTINATION]
    far, own = np.where(egress, destination, source), np.where(egress, source, destination)
    far_length = np.where(egress, table.dst_len, table.src_len)
    own_length = np.where(egress, table.src_len, table.dst_len)
    ports = _ports_curve(low[:, _SOURCE_PORTS].astype(np.uint32), low[:, _DESTINATION_PORTS].astype(np.uint32))
    return np.lexsort((ports, far, own, far_length > 0, own_length > 0, table.direction, low[:, _TENANT]))


def _ports_curve(source: npt.NDArray[np.uint32], destination: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Places along a Z-curve: the 16 bits of both in turn."""
    found: npt.NDArray[np.uint32] = _spread(source) << np.uint32(1) | _spread(destination)
    return found


def _spread(ports: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Numbers of 16 bits with a zero before each bit."""
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        ports = (ports | ports << np.uint32(shift)) & np.uint32(mask)
    return ports

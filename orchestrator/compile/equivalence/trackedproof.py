"""Programs that track connections: rules read as rows about packets, tracking rows held exactly.

A rule's row asks for the packet that opened the connection (`ct_nw_src`, `ct_tp_dst`, ...). Read as if it asked for a
packet's own header it is a row as all others are, and the proof of lists is about the packets that open connections:

    the row asks for                                      it is read as
    ct_state +trk-inv, once, with any of these            nothing
    ct_nw_src, ct_nw_dst, ct_ipv6_src, ct_ipv6_dst        the addresses
    ct_nw_proto                                           the protocol
    ct_tp_src, ct_tp_dst                                  ports; ICMP's type and code; and no later fragment
    copies of ct_nw_dst, ct_ipv6_dst, ct_tp_dst           the same, where ingress rows name a source (copyproof.py)

A row of a rule that asks for the packet's own header in such a program is refused. So is a program whose rows that look
connections up, sort out what may open one, ask lists about replies and remember, are not exactly those written here,
from ovs-fields(7), ovs-actions(7) and docs/pipeline.md. All that the two sides share is numbers of tables, registers
and priorities. A change of these rows has the whole program proven again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.equivalence.alonerows import LEAVES, LISTS
from orchestrator.compile.equivalence.chain import apply_actions, goto
from orchestrator.compile.equivalence.copyproof import read_copies
from orchestrator.compile.pipelines.host import MISS_PRIORITY, STATIC_PRIORITY, TRACK_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
_LISTS = (Table.OPERATOR, Table.EGRESS, Table.INGRESS)
_OWN_TABLES = {
    Table.STATE: -1, Table.LIFTED: TRACK_PRIORITY - 1, Table.OUTPUT: 10, Table.SEND: 10,
    Table.ALONE_OPERATOR: -1, Table.ALONE_EGRESS: -1, Table.ALONE_INGRESS: -1, Table.RECEIVER_PORTS: 0,
}  # fmt: skip
"""Tables in which no row stands above a priority but those that track."""
_OF_NOBODY = (Table.STATE, Table.OUTPUT, Table.SEND)
"""Tables in which no tenant has rows."""
_V4, _V6 = 0x0800, 0x86DD
_NEW, _RELATED, _REPLY, _INVALID, _TRACKED = 0x01, 0x04, 0x08, 0x10, 0x20
_TCP, _ICMP, _ICMPV6, _WITH_PORTS = 6, 1, 58, {6: 13, 17: 15, 132: 17}
_MARK_IS_ONE = struct.pack(">HHHBBI4x", 25, 16, 0x0001, 107 << 1, 4, 1)
_NOT_LATER = struct.pack(">HBBBB", 0x0001, 26 << 1 | 1, 2, 0, 2)
_VALID = struct.pack(">HBBII", 0x0001, 105 << 1 | 1, 8, _TRACKED, _TRACKED | _INVALID)
_NOTHING_KNOWN = 0xFFFF
_COPIES, _ONES = range(4, 7), b"\xff" * 8
"""The packet registers that hold copies, and the mask of all bits of one."""


class _Term(NamedTuple):
    """A field of a match: class, number, and value with an optional mask, as bytes."""

    oxm_class: int
    number: int
    masked: int
    body: bytes

    def pack_bytes(self) -> bytes:
        return struct.pack(">HBB", self.oxm_class, self.number << 1 | self.masked, len(self.body)) + self.body


def _pack_nicira(number: int, value: int, mask: int | None = None) -> bytes:
    body = struct.pack(">I", value) + (b"" if mask is None else struct.pack(">I", mask))
    return _Term(1, number, int(mask is not None), body).pack_bytes()


def _register(number: int, value: int) -> bytes:
    """A match of one register, as half of a packet register."""
    shift = 0 if number % 2 else 32
    return _Term(0x8001, number // 2, 1, struct.pack(">QQ", value << shift, 0xFFFFFFFF << shift)).pack_bytes()


def _pack_state(value: int, lacks: int = 0) -> bytes:
    return _pack_nicira(105, value | _TRACKED, value | lacks | _TRACKED)


def _asks(value: int, mask: int) -> bytes:
    """A match of bits of register 7."""
    return _Term(0x8001, 3, 1, struct.pack(">QQ", value, mask)).pack_bytes()


def _pack_look_up(zone: int, table: int, *before: bytes) -> bytes:
    return apply_actions(*before, struct.pack(">HHIHHIHB3xH", 0xFFFF, 24, 0x2320, 35, 0, 0, zone, table, 0))


def _remember_action(zone: int, mark: bytes = _MARK_IS_ONE) -> bytes:
    head = struct.pack(">HHIHHIHB3xH", 0xFFFF, 40, 0x2320, 35, 3, 0, zone, Table.SEND, 0)
    return apply_actions(*(_pack_set_register(number, 0) for number in range(8, 13)), head + mark)


def _set_mark(bits: int) -> bytes:
    """The action that sets bits of a connection's mark, and leaves the others."""
    return struct.pack(">HHHBBII", 25, 16, 0x0001, 107 << 1 | 1, 8, bits, bits)


def _copy_action(source: int, target: int) -> bytes:
    headers = struct.pack(">HBBHBB", 1, source << 1, 4, 1, target << 1, 4)
    return struct.pack(">HHHHH2x", 28, 24, 32, 0, 0) + headers + bytes(4)


def _pack_set_register(register: int, value: int) -> bytes:
    return struct.pack(">HHHBBI4x", 25, 16, 0x0001, register << 1, 4, value)


@lru_cache(maxsize=64)
def _expected_rows(zone: int, holds_replies: bool, is_mixed: bool) -> frozenset[Flow]:
    """Return the exact rows that track connections in a zone.

    Where replies are held, these and packets that belong to no connection are dropped. Where rules decide alone, they
    are asked before a connection is looked up.
    """
    aside = b"" if holds_replies else goto(Table.OPERATOR)
    reply = b"" if holds_replies else apply_actions(_pack_set_register(6, 1)) + goto(Table.LOCAL)
    rows = [
        (Table.STATE, 100, _pack_state(_INVALID), b"", 0),
        (Table.STATE, 60, _pack_state(_REPLY), reply, 0),
        (Table.STATE, 20, _pack_state(_RELATED), aside, 0),
        (Table.STATE, 10, _pack_state(0), goto(Table.LIFTED), 0),
        (Table.STATE, MISS_PRIORITY, b"", b"", 0),
        (Table.LOCAL, 2000, _register(6, 2), goto(Table.RECEIVER_PORTS), 0),
        (Table.RECEIVER_PORTS, MISS_PRIORITY, b"", goto(Table.INGRESS), 0),
        (Table.INGRESS, STATIC_PRIORITY + 1, _register(6, 1), goto(Table.OUTPUT), 0),
        (Table.INGRESS, STATIC_PRIORITY, _register(1, 0), goto(Table.OUTPUT), 0),
        (Table.OUTPUT, 30, _register(6, 1), apply_actions(*_asks_again()), 0),
        (Table.SEND, 20, _pack_state(_NEW) + _pack_nicira(107, 0), b"", 1),
        *_rows_about_ends(),
    ]
    for version in (_V4, _V6):
        ip = struct.pack(">HBBH", 0x8000, 5 << 1, 2, version)
        tcp = struct.pack(">HBBB", 0x8000, 10 << 1, 1, _TCP)
        syn, no_answer = (struct.pack(">HBBHH", 0x8000, 42 << 1 | 1, 4, *flags) for flags in ((0x02, 0x12), (0, 0x14)))
        later = struct.pack(">HBBBB", 0x0001, 26 << 1 | 1, 2, 2, 2)
        unknown = _pack_nicira(105, 0, _TRACKED)
        first = _FIND_ENDS if is_mixed else _pack_look_up(zone, Table.STATE)
        rows += [
            *_rows_of_version(zone, ip),
            (Table.LIFTED, TRACK_PRIORITY, ip + unknown, first, 0),
            (Table.STATE, 100, ip + struct.pack(">HBBB", 0x8000, 10 << 1, 1, 0), b"", 0),
            (Table.STATE, 70, ip + tcp + no_answer + _pack_state(_REPLY), b"", 0),
            (Table.STATE, 50, ip + tcp + syn + _pack_state(_NEW) + _pack_nicira(107, 0), goto(Table.LIFTED), 0),
            (Table.STATE, 40, ip + tcp + syn + _pack_state(_NEW), _pack_look_up(_NOTHING_KNOWN, Table.LIFTED), 0),
            (Table.STATE, 30, ip + tcp + _pack_state(_NEW), b"", 0),
            (Table.STATE, 20, ip + later + _pack_state(0), aside, 0),
            (Table.OUTPUT, 20, ip + _asks(0, 3) + _pack_state(_NEW) + _pack_nicira(107, 0), _remember_action(zone), 0),
        ]  # fmt: skip
    return frozenset(Flow(table, at, match, does, _STRUCTURE + number) for table, at, match, does, number in rows)


_Row = tuple[int, int, bytes, bytes, int]
"""Table, priority, match, instructions, and the number in the cookie."""

_FIND_ENDS = apply_actions(_pack_set_register(7, 4)) + goto(Table.ALONE_OPERATOR)
_HALVES = ((2, 2, 1), (4, 1, 2))
"""Of a mark that one end set, which is not known to the other: the mark, the bits of the other end and of its own."""


def _rows_about_ends() -> Iterator[_Row]:
    """Which ends ask connections, and what an end drops that does not know the packet's."""
    yield Table.ALONE_OPERATOR, MISS_PRIORITY, b"", goto(Table.ALONE_EGRESS), 0
    yield Table.ALONE_EGRESS, STATIC_PRIORITY + 1, _register(0, 0), goto(Table.LOCAL), 0
    for table in (Table.ALONE_EGRESS, Table.ALONE_INGRESS):
        yield table, STATIC_PRIORITY, _asks(16, 16), LEAVES[table], 0
        yield table, MISS_PRIORITY, b"", LEAVES[table], 0
    yield Table.INGRESS, STATIC_PRIORITY + 2, _register(3, 0) + _asks(4, 4), goto(Table.ALONE_INGRESS), 0
    yield Table.LOCAL, 2000, _asks(8, 8), goto(Table.RECEIVER_PORTS), 0
    yield Table.OUTPUT, 40, _asks(4, 7), goto(Table.SEND), 0
    for mark, other, own in _HALVES:
        known = _pack_nicira(107, mark, 7)
        yield Table.STATE, 90, _asks(0, 8) + _pack_state(0) + known, _FIND_ENDS, 0
        yield Table.STATE, 80, _asks(own, own) + _pack_state(_REPLY) + known, b"", 0
        yield Table.STATE, 80, _asks(other, other) + _pack_state(_RELATED, _REPLY) + known, b"", 0


def _rows_of_version(zone: int, ip: bytes) -> Iterator[_Row]:
    """Yield the rows about connections of one IP version."""
    for bits, forgotten in ((1, (_pack_set_register(1, 0),)), (2, (_pack_set_register(0, 0),)), (3, ())):
        noted = (*forgotten, _pack_set_register(7, 8 | bits))
        yield Table.OUTPUT, 40, ip + _asks(4 | bits, 7), _pack_look_up(zone, Table.STATE, *noted), 0
        opens = ip + _asks(bits, 3) + _pack_state(_NEW) + _pack_nicira(107, 0)
        yield Table.OUTPUT, 20, opens, _remember_action(zone, _set_mark(bits << 1)), 0
    tcp = struct.pack(">HBBB", 0x8000, 10 << 1, 1, _TCP)
    for mark, other, _ in _HALVES:
        known = _pack_nicira(107, mark, 7)
        yield Table.STATE, 80, ip + tcp + _asks(other, other) + _pack_state(0, _NEW | _REPLY) + known, b"", 0
        goes_on = ip + _asks(other, other) + _pack_state(0, _RELATED | _REPLY) + known
        yield Table.OUTPUT, 20, goes_on, _remember_action(zone, _set_mark(other << 1)), 0


def _asks_again() -> tuple[bytes, ...]:
    """A reply's sender and receiver change places, and the lists are asked."""
    again = struct.pack(">HHIHHB3x", 0xFFFF, 16, 0x2320, 14, 0xFFF8, Table.OPERATOR)
    return _copy_action(0, 5), _copy_action(1, 0), _copy_action(5, 1), _pack_set_register(6, 2), again


def tracks(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that may track connections.

    They are the rows of nobody in the tables where such rows stand.
    """
    tables = [*_OWN_TABLES, Table.LOCAL, Table.INGRESS]
    of_nobody = (flows.tenant == 0) & (flows.cookie >> np.uint64(40) == np.uint64(_STRUCTURE >> 40))
    found: npt.NDArray[np.bool_] = of_nobody & np.isin(flows.table, tables)
    return found


def alone_rows(flows: FlowTable) -> FlowTable:
    """Return the rows of rules in the tables that decide before connections are looked up."""
    return flows.take(np.isin(flows.table, list(LISTS)) & ~tracks(flows))


class Read(NamedTuple):
    """Rows as about packets, and the tenants whose rows ask for copies."""

    rows: FlowTable
    asking: frozenset[int]


def read_whole(flows: FlowTable, *, holds_replies: bool, is_mixed: bool) -> Read:
    """Return the rows of a program that neither track nor decide alone, as about packets.

    `holds_replies` as in the policy; `is_mixed`: some of its rules decide alone. Raises NotEquivalent.
    """
    places = np.flatnonzero(tracks(flows)).tolist()
    rows = {place: flows.row(place) for place in places}
    zones = {_zone(row) for row in rows.values() if (row.table, row.priority) == (Table.OUTPUT, 40)} - {0}
    zone = next(iter(zones), 0)
    if len(zones) != 1 or zone in (0, _NOTHING_KNOWN):
        raise NotEquivalent("connections are not looked up in one zone of the program's own")
    wanted = _expected_rows(zone, holds_replies, is_mixed)
    found = [place for place, row in rows.items() if row in wanted]
    missing = wanted - {rows[place] for place in found}
    if missing or len(found) != len(wanted):
        row = next(iter(missing), rows[places[0]])
        raise NotEquivalent(
            f"the row of table {row.table} at priority {row.priority} that tracks is missing or doubled"
        )
    for row in rows.values():
        if row not in wanted and row.priority > _OWN_TABLES.get(Table(row.table), 1 << 16):
            raise NotEquivalent(
                f"the row of table {row.table} at priority {row.priority} tracks, and must not be there"
            )
    keep = np.ones(len(flows), np.bool_)
    keep[found] = False
    return read_rows(flows.take(keep))


def _zone(row: Flow) -> int:
    """Return the zone of a row that looks connections up for known ends, else 0."""
    return int.from_bytes(row.instructions[-8:-6], "big") if len(row.instructions) >= 32 else 0


def read_rows(flows: FlowTable) -> Read:
    """Rows of a program that tracks connections, those of rules read as about packets.

    Those that decide alone are left out. Raises NotEquivalent.
    """
    strange = np.flatnonzero(np.isin(flows.table, _OF_NOBODY) & (flows.tenant != 0))
    if len(strange):
        raise _refuse_row(flows, int(strange[0]), "is a tenant's, in a table where tenants have none")
    is_alone = np.isin(flows.table, list(LISTS))
    flows = flows.take(~is_alone) if is_alone.any() else flows
    of_lists = np.flatnonzero(np.isin(flows.table, _LISTS))
    if not len(of_lists):
        return Read(flows, frozenset())
    lengths = flows.match_length.tolist()
    matches = [row.tobytes()[:length] for row, length in zip(flows.match, lengths, strict=True)]
    asking = []
    for place in of_lists.tolist():
        terms = _read_terms(matches[place], flows, place)
        copies = tuple(term for term in terms if term.oxm_class == 0x8001 and term.number in _COPIES)
        if copies:
            asking.append(place)
            terms = _read_copies(copies, terms, flows, place)
        matches[place] = _read_match(terms, flows, place)
    width = max(map(len, matches))
    whole = b"".join(match.ljust(width, b"\0") for match in matches)
    read = replace(
        flows,
        match=np.frombuffer(whole, np.uint8).reshape(len(matches), width),
        match_length=np.array(list(map(len, matches)), np.uint8),
    )
    return Read(read, frozenset(flows.tenant[asking].tolist()))


def _read_copies(copies: tuple[_Term, ...], terms: list[_Term], flows: FlowTable, place: int) -> list[_Term]:
    """Return a row's terms with connections' fields in place of their copies."""
    numbers = {term.number for term in terms if term.oxm_class == 1}
    if flows.table[place] != Table.INGRESS or not flows.tenant[place] or numbers.isdisjoint((120, 122)):
        raise _refuse_row(flows, place, "asks for copies, and is no row of ingress that names a source")
    version = next((term.body for term in terms if (term.oxm_class, term.number) == (0x8000, 5)), b"")
    found = _find_copied(copies, version)
    if not found or not numbers.isdisjoint([term.number for term in found]):
        raise _refuse_row(flows, place, "asks for copies of what is none, or for the same twice")
    return [*(term for term in terms if term.oxm_class != 0x8001 or term.number not in _COPIES), *found]


@lru_cache(maxsize=1 << 12)
def _find_copied(copies: tuple[_Term, ...], version: bytes) -> tuple[_Term, ...]:
    """Return the terms of the fields that were copied; none if there are none."""
    if any(term.masked and term.body[8:] == _ONES for term in copies):
        return ()
    registers = {term.number: (term.body[:8], term.body[8:]) if term.masked else (term.body, _ONES) for term in copies}
    return tuple(
        _Term(1, number, 0, value) if all(byte == 0xFF for byte in mask) else _Term(1, number, 1, value + mask)
        for number, value, mask in read_copies(registers, int.from_bytes(version, "big"))
    )


def _read_match(terms: list[_Term], flows: FlowTable, place: int) -> bytes:
    asked = {term.number: term for term in terms if term.oxm_class == 1 and term.number in range(119, 126)}
    own = [
        term
        for term in terms
        if term.oxm_class not in (0x8001, 1) or term.number not in (37, 105, *range(4), *range(119, 126))
    ]
    if any((term.oxm_class, term.number) != (0x8000, 5) for term in own if term.oxm_class != 0x8001):
        raise _refuse_row(flows, place, "asks for a packet's own header, where connections are tracked")
    states = [term.pack_bytes() for term in terms if (term.oxm_class, term.number) == (1, 105)]
    if states != ([_VALID] if asked else []):
        raise _refuse_row(flows, place, "does not ask once whether the packet has a valid connection")
    kept = [term for term in terms if term.oxm_class != 1 or term.number == 37]
    before = [term.pack_bytes() for term in kept if term.oxm_class != 0x8001]
    after = [term.pack_bytes() for term in kept if term.oxm_class == 0x8001]
    return b"".join([*before, *_about_packets(asked, flows, place), *after])


def _about_packets(asked: dict[int, _Term], flows: FlowTable, place: int) -> list[bytes]:
    """Return the terms about a packet's own header, in the order that rules use."""
    found = [
        _Term(0x8000, number, asked[known].masked, asked[known].body).pack_bytes()
        for known, number in ((120, 11), (121, 12), (122, 26), (123, 27))
        if known in asked
    ]
    ports = [asked[number] for number in (124, 125) if number in asked]
    if ports:
        found.append(_NOT_LATER)
    protocol = asked.get(119)
    if protocol is not None:
        found.append(_Term(0x8000, 10, 0, protocol.body).pack_bytes())
    number = protocol.body[0] if protocol is not None and not protocol.masked else None
    return [*found, *(_port(term, number, flows, place) for term in ports)]


def _port(term: _Term, protocol: int | None, flows: FlowTable, place: int) -> bytes:
    """Read a port of the first packet as its protocol's port field.

    With ICMP it is the type or the code.
    """
    second = term.number == 125
    if protocol in _WITH_PORTS:
        return _Term(0x8000, _WITH_PORTS[protocol] + second, term.masked, term.body).pack_bytes()
    if protocol in (_ICMP, _ICMPV6) and not term.masked and not term.body[0]:
        return _Term(0x8000, (19 if protocol == _ICMP else 29) + second, 0, term.body[1:]).pack_bytes()
    raise _refuse_row(flows, place, "asks for a port of what has none")


def _read_terms(match: bytes, flows: FlowTable, place: int) -> list[_Term]:
    found, at = [], 0
    while at < len(match):
        if at + 4 > len(match) or at + 4 + match[at + 3] > len(match):
            raise _refuse_row(flows, place, "ends early")
        oxm_class, kind, length = struct.unpack_from(">HBB", match, at)
        found.append(_Term(oxm_class, kind >> 1, kind & 1, match[at + 4 : at + 4 + length]))
        at += 4 + length
    if len({(term.oxm_class, term.number) for term in found}) < len(found):
        raise _refuse_row(flows, place, "has a field twice")
    return found


def _refuse_row(flows: FlowTable, place: int, what: str) -> NotEquivalent:
    flow = flows.row(place)
    return NotEquivalent(
        f"the flow entry of table {flow.table}, priority {flow.priority}, cookie {flow.cookie:#x}, match "
        f"{flow.match.hex()} {what}"
    )

"""A switch in a hundred lines: what the rows of a `FlowTable` do to a packet, read from their bytes alone.

It shares no code with the compiler: match fields, actions and instructions are taken apart here once more, from the
OpenFlow 1.5 specification and ovs-fields(7). In a table the row with the highest priority wins; two rows that match at
that priority are an error, for a real switch would choose as it likes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.program.flows import Flow, FlowTable

_BASIC = {
    0: "in_port", 3: "eth_dst", 4: "eth_src", 5: "eth_type", 6: "vlan_vid", 8: "ip_dscp", 10: "ip_proto",
    11: "ipv4_src", 12: "ipv4_dst", 13: "tcp_src", 14: "tcp_dst", 15: "udp_src", 16: "udp_dst",
    17: "sctp_src", 18: "sctp_dst", 19: "icmp_type", 20: "icmp_code", 21: "arp_op", 22: "arp_spa", 23: "arp_tpa",
    24: "arp_sha", 25: "arp_tha", 26: "ipv6_src", 27: "ipv6_dst", 29: "icmpv6_type", 30: "icmpv6_code",
    31: "nd_target", 32: "nd_sll", 33: "nd_tll", 42: "tcp_flags",
}  # fmt: skip
_NAMES = {(0x8000, number): name for number, name in _BASIC.items()}
_NAMES |= {(0x0001, number): f"reg{number}" for number in range(8)} | {(0x0001, 26): "ip_frag"}
_NAMES |= {(0x0001, 37): "conj_id"}
_NAMES |= {(0x1000, 1): "nd_reserved", (0x1000, 2): "nd_options_type"}
_L4 = {6: "tcp", 17: "udp", 132: "sctp"}

BACK = 0xFFFFFFF8
"""The port number that means: where it came from."""

Fields = dict[str, int]


class Test(NamedTuple):
    """One field's part of a match."""

    name: str
    value: int
    mask: int


@dataclass(frozen=True)
class Row:
    """A flow entry taken apart. One with `clauses` (conjunction, clause, of how many) decides nothing by itself."""

    priority: int
    tests: tuple[Test, ...]
    instructions: bytes
    cookie: int
    clauses: tuple[tuple[int, int, int], ...] = ()

    def matches(self, fields: Fields) -> bool:
        for name, value, mask in self.tests:  # noqa: SIM110 -- most of the time of compilers' laws is spent here
            if name not in fields or fields[name] & mask != value:
                return False
        return True

    def asks_for(self, conjunction: int, fields: Fields) -> bool:
        """Whether it decides what meets all clauses of a conjunction."""
        return any(test.name == "conj_id" for test in self.tests) and self.matches(fields | {"conj_id": conjunction})


@dataclass
class Journey:
    """Where a packet went: the cookie of the row it hit in each table, what left by which port, and the cookies of
    the rows that had it reported, with the meters."""

    cookies: list[int] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    out: list[tuple[int, Fields]] = field(default_factory=list)
    reported: list[tuple[int, int]] = field(default_factory=list)


class Switch:
    """The tables of one switch."""

    def __init__(self, flows: FlowTable) -> None:
        self._tables: dict[int, list[Row]] = {}
        for flow in flows.rows():
            self._tables.setdefault(flow.table, []).append(_row(flow))
        for rows in self._tables.values():
            rows.sort(key=lambda row: -row.priority)
        self._conjunctive = {table for table, rows in self._tables.items() if any(row.clauses for row in rows)}

    def send(self, fields: Fields) -> Journey:
        """Put a packet in; `fields` must hold its in_port. Absent fields match nothing; registers start at zero."""
        journey = Journey()
        now: Fields = {f"reg{number}": 0 for number in range(8)} | fields
        table: int | None = 0
        while table is not None:
            row = self._hit(table, now)
            journey.tables.append(table)
            if row is None:
                break
            journey.cookies.append(row.cookie)
            following = _execute(row.instructions, now, journey)
            assert following is None or following > table, "a packet can only go forward"
            table = following
        return journey

    def _hit(self, table: int, fields: Fields) -> Row | None:
        found, rows = None, self._tables.get(table, [])
        asked = fields | {"conj_id": 0}
        if table in self._conjunctive:
            return self._hit_by_clauses(rows, fields, [row for row in rows if row.matches(asked)])
        for row in rows:
            if found is not None and row.priority < found.priority:
                break
            if row.matches(asked):
                assert found is None, f"table {table}: rows match at priority {row.priority}: {found}, {row}"
                found = row
        return found

    @staticmethod
    def _hit_by_clauses(every: list[Row], fields: Fields, rows: list[Row]) -> Row | None:
        met = {(row.priority, number) for row in rows for number, _, _ in row.clauses}
        whole = {number for priority, number in met if _is_whole(number, [r for r in rows if r.priority == priority])}
        rows += [row for number in whole for row in every if row.asks_for(number, fields)]
        deciding = sorted((row for row in rows if not row.clauses), key=lambda row: -row.priority)
        equal = [row for row in deciding if row.priority == deciding[0].priority]
        assert len(equal) < 2, f"{len(equal)} rows match at priority {equal[0].priority}: {equal}"
        return equal[0] if equal else None


def fields_of(packet: Packet, in_port: int, eth_src: int, eth_dst: int, *, first: bool = False) -> Fields:
    """The fields a switch in nx-match mode sees of a packet. `first`: a whole packet sent as a first fragment."""
    six = packet.family is Family.IPV6
    version = "ipv6" if six else "ipv4"
    fields = {
        "in_port": in_port, "eth_src": eth_src, "eth_dst": eth_dst, "eth_type": 0x86DD if six else 0x0800,
        "vlan_vid": 0, f"{version}_src": packet.source, f"{version}_dst": packet.destination,
        "ip_dscp": packet.dscp, "ip_proto": packet.protocol, "ip_frag": 3 if packet.later_fragment else int(first),
    }  # fmt: skip
    if packet.later_fragment:
        return fields
    if packet.protocol in _L4:
        name = _L4[packet.protocol]
        fields |= {f"{name}_src": packet.source_port, f"{name}_dst": packet.destination_port}
    if packet.protocol == 6:
        fields["tcp_flags"] = packet.tcp_flags
    if packet.protocol == (58 if six else 1):
        name = "icmpv6" if six else "icmp"
        fields |= {f"{name}_type": packet.icmp_type, f"{name}_code": packet.icmp_code}
    return fields


def _row(flow: Flow) -> Row:
    clauses = _clauses(flow.instructions)
    return Row(flow.priority, tuple(_tests(flow.match)), flow.instructions, flow.cookie, clauses)


def _clauses(instructions: bytes) -> tuple[tuple[int, int, int], ...]:
    """The conjunction actions of a row; they stand alone."""
    found = []
    named = struct.pack(">HHIH", 0xFFFF, 16, 0x2320, 34)
    if instructions[:2] == b"\0\4" and instructions[8:18] == named:
        assert len(instructions) == int.from_bytes(instructions[2:4], "big"), "a clause goes nowhere"
        for at in range(8, len(instructions), 16):
            assert instructions[at : at + 10] == named, "clauses stand alone"
            clause, clauses, number = struct.unpack_from(">BBI", instructions, at + 10)
            assert clause < clauses
            assert clauses >= 2
            found.append((number, clause, clauses))
    return tuple(found)


def _is_whole(conjunction: int, rows: list[Row]) -> bool:
    """Whether rows of one priority name all clauses of a conjunction."""
    named = {(clause, of) for row in rows for number, clause, of in row.clauses if number == conjunction}
    needed = {of for _, of in named}
    assert len(needed) < 2, "a conjunction has one number of clauses"
    return len(named) in needed


def _tests(match: bytes) -> list[Test]:
    found = []
    at = 0
    while at < len(match):
        oxm_class, kind, length = struct.unpack_from(">HBB", match, at)
        number, masked = kind >> 1, kind & 1
        body = match[at + 4 : at + 4 + length]
        assert len(body) == length, "a match ends early"
        size = length // 2 if masked else length
        value = int.from_bytes(body[:size], "big")
        mask = int.from_bytes(body[size:], "big") if masked else (1 << 8 * size) - 1
        if oxm_class == 0x8001:
            for name, shift in ((f"reg{2 * number}", 32), (f"reg{2 * number + 1}", 0)):
                if mask >> shift & 0xFFFFFFFF:
                    found.append(Test(name, value >> shift & 0xFFFFFFFF, mask >> shift & 0xFFFFFFFF))
        else:
            found.append(Test(_NAMES[oxm_class, number], value, mask))
        at += 4 + length
    return found


def _execute(instructions: bytes, fields: Fields, journey: Journey) -> int | None:
    """Apply the actions; the next table if there is one."""
    following = None
    at = 0
    while at < len(instructions):
        kind, length = struct.unpack_from(">HH", instructions, at)
        if kind == 1:
            following = instructions[at + 4]
        else:
            assert kind == 4, f"instruction {kind}"
            _apply(instructions[at + 8 : at + length], fields, journey)
        at += length
    return following


def _apply(actions: bytes, fields: Fields, journey: Journey) -> None:
    at = 0
    while at < len(actions):
        kind, length = struct.unpack_from(">HH", actions, at)
        body = actions[at + 4 : at + length]
        if kind == 0:
            _output(int.from_bytes(body[:4], "big"), fields, journey)
        elif kind == 25:
            (test,) = _tests(body[: 4 + body[3]])
            fields[test.name] = test.value
        elif kind == 28:
            bits, source_at, destination_at = struct.unpack_from(">HHH", body)
            source, destination = body[8:12], body[12:16]
            assert (source_at, destination_at) == (0, 0)
            assert bits <= 8 * min(source[3], destination[3])
            copied = (1 << bits) - 1
            kept = fields.get(_name(destination), 0) & ~copied
            fields[_name(destination)] = kept | fields[_name(source)] & copied
        elif kind == 29:
            pass  # a meter: there is no clock here, and one packet is within every rate
        elif kind == 0xFFFF and body[:6] == bytes.fromhex("000023200025"):
            assert body[6:24] == bytes.fromhex("000000000000 0000 0008 0080 0000 0005 0008"), "octets, then the meter"
            journey.reported.append((journey.cookies[-1], int.from_bytes(body[24:], "big")))
        elif kind == 0xFFFF and body[:6] == bytes.fromhex("00002320000f"):
            assert body[6:8] == bytes.fromhex("001f")  # 32 bits from offset 0
            _output(fields[_name(body[8:12])], fields, journey)
        else:
            raise AssertionError(f"action {kind}")
        at += length


def _name(header: bytes) -> str:
    oxm_class, kind = struct.unpack_from(">HB", header)
    return _NAMES[oxm_class, kind >> 1]


def _output(port: int, fields: Fields, journey: Journey) -> None:
    """A packet leaves, but never by the port it came in by unless that is what `BACK` says."""
    if port == BACK:
        journey.out.append((fields["in_port"], dict(fields)))
    elif port != fields["in_port"]:
        journey.out.append((port, dict(fields)))

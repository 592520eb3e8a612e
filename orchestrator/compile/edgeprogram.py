"""The program of a PoP's edge switches: each packet to the server of its destination.

    senders ──▶ heavy hitters ──▶ exceptions ──▶ hash ──▶ lines ──▶ nobody's: dropped
       │             │                 │                    │
     dropped      to the WAN      to a server           to a server

A packet that goes to a server is addressed to its interface by MAC address and is otherwise what it was. The tables
are declared in `pipelines/edge.py`; how lines come about is in `edge/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    DROP,
    HashFields,
    copy_field,
    instructions,
    multipath,
    output,
    resubmit,
    set_field,
)
from orchestrator.compile.openflow.oxm import IPV4, IPV6, Field, Term
from orchestrator.compile.openflow.symbols import port_table, symbols
from orchestrator.compile.pipelines.edge import (
    EXCEPTION_PRIORITY,
    HASHED,
    LINE_BITS,
    LINES_TOP,
    REGISTER_BITS,
    EdgeTable,
)
from orchestrator.compile.pipelines.host import GATEWAY_MAC, MISS_PRIORITY
from orchestrator.edge.chunks import Chunking
from orchestrator.edge.lines import I64, Lines
from orchestrator.edge.settings import MOST_LINES, WIDEST_LINE
from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.program.flows import U64, Flow, FlowTable
from orchestrator.program.program import Program, Tier

_MULTICAST_BIT = 1 << 40
_TAGGED, _MULTICAST, _ADMITTED, _SPOOFED = 30, 20, 10, 10
_HIGHEST_BASIS = 0xFFFF
_VERSIONS = {Family.IPV4: IPV4, Family.IPV6: IPV6}
_SOURCES = {Family.IPV4: oxm.IPV4_SRC, Family.IPV6: oxm.IPV6_SRC}
_DESTINATIONS = {Family.IPV4: oxm.IPV4_DST, Family.IPV6: oxm.IPV6_DST}


@dataclass(frozen=True, slots=True)
class Way:
    """The path to a firewall server: its number, the edge's port, its MAC address."""

    number: int
    port: str
    mac: int


@dataclass(frozen=True, slots=True, eq=False)
class FamilyLines:
    """The lines of one IP version, with their exceptions. Servers are numbers of ways."""

    chunking: Chunking
    lines: Lines

    def __post_init__(self) -> None:
        shape = self.lines.shape
        if shape.width > WIDEST_LINE:
            raise BadInput(f"lines of {shape.width} bits: a switch holds {WIDEST_LINE}", place="width")
        if max(shape.bases) > _HIGHEST_BASIS:
            raise BadInput(f"a switch takes bases up to {_HIGHEST_BASIS}", place="bases")
        if len(self.lines) > MOST_LINES:
            raise TooLarge(f"{len(self.lines)} lines: there are priorities for {MOST_LINES}", place="most_lines")


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """All that an edge's program is made of.

    `outside` are the ports towards the outside, `owned` the tenants' prefixes, `heavy` the rows of heavy hitters
    (`edgeheavy.py`), `families` the lines of the IP versions in which somebody owns something.
    """

    outside: tuple[str, ...]
    ways: tuple[Way, ...]
    owned: tuple[Prefix, ...]
    families: tuple[FamilyLines, ...]
    heavy: FlowTable

    def ports(self) -> tuple[str, ...]:
        """The names of the program's port symbols."""
        return port_table((*self.outside, *(way.port for way in self.ways)))


def edge_program(edge: Edge, *, domain: str, generation: int) -> Program:
    """Compile the program of an edge.

    Raises BadInput for a line or an exception of a server that is not among the ways.
    """
    flows = FlowTable.join_tables((edge_rows(edge), edge.heavy))
    return Program.of(domain, Tier.EDGE, generation, flows, edge.ports())


def edge_rows(edge: Edge) -> FlowTable:
    """All rows but those of heavy hitters. Raises BadInput as `edge_program`."""
    numbered = symbols(edge.ports())
    towards = {way.number: _towards(way, numbered[way.port]) for way in edge.ways}
    rows: list[Flow] = [*_make_admission_flows(edge, numbered), *_make_sender_flows(edge.owned), *_ends()]
    for each in edge.families:
        rows += _make_exception_flows(each, towards)
        rows += _make_line_flows(each, towards)
        rows.append(_make_hash_flow(each))
    rows += _make_one_hot_flows(max((each.lines.shape.width for each in edge.families), default=0))
    return FlowTable.of(rows)


def packets_of_lines(flows: FlowTable, packets: U64, family: Family, count: int) -> I64:
    """Return each line's packets, in order, from flow entries with counters.

    Those of a program, or as read back from a switch.
    """
    version = oxm.pack([Term(oxm.ETH_TYPE, _VERSIONS[family])])
    of_family = (flows.match[:, : len(version)] == np.frombuffer(version, np.uint8)).all(axis=1)
    mine = (flows.table == EdgeTable.LINES) & (flows.priority > LINES_TOP - count) & of_family
    found = np.zeros(count, np.int64)
    found[LINES_TOP - flows.priority[mine].astype(np.int64)] = packets[mine]
    return found


def _make_flow(table: EdgeTable, priority: int, terms: Iterable[Term], what: bytes = DROP, kind: Kind = Kind.STRUCTURE,
          number: int = 0) -> Flow:  # fmt: skip
    return Flow(table, priority, oxm.pack(terms), what, Cookie(Tier.EDGE, kind, number).pack())


def _towards(way: Way, symbol: int) -> bytes:
    """Make the instructions that send a packet to a firewall server."""
    return instructions([set_field(oxm.ETH_SRC, GATEWAY_MAC), set_field(oxm.ETH_DST, way.mac), output(symbol)])


def _make_admission_flows(edge: Edge, numbered: Mapping[str, int]) -> Iterator[Flow]:
    table, let_in = EdgeTable.ADMISSION, instructions(goto=EdgeTable.SENDERS)
    yield _make_flow(table, _TAGGED, [Term(oxm.VLAN_VID, oxm.VLAN_PRESENT, oxm.VLAN_PRESENT)])
    yield _make_flow(table, _MULTICAST, [Term(oxm.ETH_DST, _MULTICAST_BIT, _MULTICAST_BIT)])
    for port in edge.outside:
        for version in (IPV4, IPV6):
            terms = [Term(oxm.IN_PORT, numbered[port]), Term(oxm.ETH_TYPE, version)]
            yield _make_flow(table, _ADMITTED, terms, let_in)


def _make_sender_flows(owned: tuple[Prefix, ...]) -> Iterator[Flow]:
    for prefix in aggregate(owned):
        yield _make_flow(EdgeTable.SENDERS, _SPOOFED, _within(prefix, _SOURCES), kind=Kind.SPOOFED)


def _ends() -> Iterator[Flow]:
    """Yield the last row of each table."""
    onwards = (
        (EdgeTable.SENDERS, EdgeTable.HEAVY),
        (EdgeTable.HEAVY, EdgeTable.EXCEPTIONS),
        (EdgeTable.EXCEPTIONS, EdgeTable.HASH),
    )
    for table, following in onwards:
        yield _make_flow(table, MISS_PRIORITY, [], instructions(goto=following))
    yield _make_flow(EdgeTable.ADMISSION, MISS_PRIORITY, [])
    yield _make_flow(EdgeTable.ONE_HOT, MISS_PRIORITY, [])
    for table in (EdgeTable.HASH, EdgeTable.LINES):
        yield _make_flow(table, MISS_PRIORITY, [], kind=Kind.NOBODY)


def _within(prefix: Prefix, fields: Mapping[Family, Field]) -> list[Term]:
    """Return the match on addresses of a prefix."""
    bits = prefix.family.bits
    mask = (1 << bits) - (1 << (bits - prefix.length))
    return [Term(oxm.ETH_TYPE, _VERSIONS[prefix.family]), Term(fields[prefix.family], prefix.network, mask)]


def _make_exception_flows(each: FamilyLines, towards: Mapping[int, bytes]) -> Iterator[Flow]:
    lines = each.lines
    for key, server in zip(lines.exception.tolist(), lines.exception_server.tolist(), strict=True):
        terms = _within(each.chunking.prefix(key), _DESTINATIONS)
        way = _find_way(towards, server)
        yield _make_flow(EdgeTable.EXCEPTIONS, EXCEPTION_PRIORITY, terms, way, Kind.EXCEPTION, server)


def _make_hash_flow(each: FamilyLines) -> Flow:
    chunking, shape = each.chunking, each.lines.shape
    family, length = chunking.family, chunking.length
    actions = [
        set_field(oxm.ETH_SRC, 0),
        copy_field(_DESTINATIONS[family], oxm.ETH_SRC, bits=length, source_at=family.bits - length),
    ]
    for basis in shape.bases:
        actions += [multipath(HashFields.ETH_SRC, basis, shape.width, HASHED.field), resubmit(EdgeTable.ONE_HOT)]
    terms = [Term(oxm.ETH_TYPE, _VERSIONS[family])]
    return _make_flow(EdgeTable.HASH, _ADMITTED, terms, instructions(actions, goto=EdgeTable.LINES))


def _make_one_hot_flows(width: int) -> Iterator[Flow]:
    """Yield the flows that turn a hashed number into a register's bit."""
    for bit in range(width):
        number, place = divmod(bit, REGISTER_BITS)
        set_bit = set_field(LINE_BITS[number].field, 1 << place, 1 << place)
        yield _make_flow(EdgeTable.ONE_HOT, _ADMITTED, [Term(HASHED.field, bit)], instructions([set_bit]))


def _make_line_flows(each: FamilyLines, towards: Mapping[int, bytes]) -> Iterator[Flow]:
    version = Term(oxm.ETH_TYPE, _VERSIONS[each.chunking.family])
    words = _words(~each.lines.bits)
    for index, (server, absent) in enumerate(zip(each.lines.server.tolist(), words.tolist(), strict=True)):
        terms = [version, *(Term(LINE_BITS[place].field, 0, word) for place, word in enumerate(absent) if word)]
        yield _make_flow(EdgeTable.LINES, LINES_TOP - index, terms, _find_way(towards, server), Kind.LINE, server)


def _words(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Bits of lines as words of 32, the first bit lowest: (lines, words)."""
    lines, width = bits.shape
    padded = np.zeros((lines, -(-width // REGISTER_BITS) * REGISTER_BITS), np.bool_)
    padded[:, :width] = bits
    packed = np.packbits(padded, axis=1, bitorder="little")
    return packed.view("<u4").astype(np.uint32)


def _find_way(towards: Mapping[int, bytes], server: int) -> bytes:
    if server not in towards:
        raise BadInput(f"there is no way to server {server}", place="ways")
    return towards[server]

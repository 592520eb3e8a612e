"""Host rows that track connections: connection look-up, and rules that read its result.

    opens one, or goes    lifted ─ look up ─▶ state ─▶ lifted ─▶ operator ─▶ egress ─▶ local ─▶ ingress ─▶ output
    in its direction

    a reply               lifted ─ look up ─▶ state ─▶ local ─▶ output ─ tenants swapped ─┐
                              ┌───────────────────────────────────────────────────────────┘
                              └▶ operator ─▶ egress ─▶ local ─▶ ingress ─▶ output

* A rule's rows ask for the packet that opened the connection, which the switch shows with every packet of it. So each
  packet is decided, and counted, by the rule that permits its connection now; a changed list needs no list of
  connections to take force, and an entry in the switch's memory opens nothing by itself.
* The first packet is remembered where it would leave, when the sender's egress and the receiver's ingress list have
  both permitted it. A switch says that there was no room by leaving the mark at 0: such a packet is dropped, so that
  no connection is open in one direction only.
* A SYN between the ends of a connection that is known and not answered may come from either of them, and the switch
  does not say from which. It is looked up once more, in a zone where nothing is remembered, so that the lists are asked
  about the SYN itself.
* Of what goes back, only a SYN has neither ACK nor RST, for the switch finds flags invalid that no stack sends. Asked
  in this way, all that a server answers shares one entry of the switch's cache, its SYN+ACK as well.
* `local` has written a reply's receiver, port and MAC addresses on the first pass; the second only asks the lists.

Where some rules are stateless, each end of a packet is first asked whether such a rule decides about the packet itself:

    lifted ─ alone_operator ─▶ alone_egress ─▶ local ─▶ alone_ingress ─▶ output ─┬─ no end asks connections ─▶ send
                                                                                 └─ one does, or both ─ look up ─▶ state

* An end that has decided alone is forgotten: its tenant's register becomes 0, so that its list is passed by, and the
  mark of a connection has a bit for each end that knows it. Both ends of one switch share the connection, and one of
  them may not know it: it drops TCP of such a connection, and what answers, and is asked about what goes on.
* A program without stateless rules looks up at once, and its mark says that every end knows the connection. Where a
  connection has the mark of one end alone, `local` is asked first there, too, which ends are on this switch.
* Open vSwitch shows nothing of a connection of protocol 0, so no list can be asked about it: it is dropped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.compile.cookies import NO_ROOM, Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP, copy_field, instructions, resubmit, set_field
from orchestrator.compile.openflow.oxm import IPV4, IPV6, Field, Term
from orchestrator.compile.openflow.tracking import State, open_with, track
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.compile.pipelines.host import (
    ASK_LISTS,
    ASKS,
    MISS_PRIORITY,
    STATIC_PRIORITY,
    TRACK_PRIORITY,
    Asks,
    Table,
)
from orchestrator.compile.pipelines.ownside import ask_copies
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

REMEMBERED = 1
"""The mark of a connection that every end knows."""
BY_SENDER, BY_RECEIVER = 2, 4
"""Bits of the mark of a connection that its first packet's sender, or receiver, knows, being on this switch."""
_ANY_MARK = REMEMBERED | BY_SENDER | BY_RECEIVER

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
REFUSED = NO_ROOM[Tier.HOST]
"""The cookie of the row that drops what opens a connection for which there is no room."""

_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_LIST_TABLES = (Table.OPERATOR, Table.EGRESS, Table.INGRESS)
_ZONES = (1 << 16) - 2
NOTHING_KNOWN = (1 << 16) - 1
"""The zone in which no program has anything remembered."""

_SECOND_PASS_PRIORITY = 2000
"""In `local`, above every prefix."""


class _Order:
    """Priorities in `state`, the first to be asked at the top."""

    INVALID, HALF_KNOWN, UNKNOWN, REOPENED, REPLY, OPENS, AFRESH, MIDSTREAM, ASIDE, KNOWN = range(100, 0, -10)


MIDSTREAM_PRIORITY = _Order.MIDSTREAM
"""In `state`, the priority of the row that drops TCP of no known connection which is no SYN."""


def zone_of(domain: str) -> int:
    """Return the zone where the switches of a domain's hosts remember connections.

    It differs from the zone of the domain's spreading switch.

    Several bridges of one daemon may share it, for a remembered connection permits nothing by itself.
    """
    return 1 + zlib.crc32(b"hosts of " + domain.encode()) % _ZONES


@dataclass(frozen=True, slots=True)
class Tracking:
    """Where a program remembers connections, and whether it holds replies (`Policy.holds_replies`)."""

    zone: int
    holds_replies: bool = False
    is_mixed: bool = False
    """Whether some rules decide alone."""


def tracking_rows(tracking: Tracking, sends: tuple[Flow, ...]) -> list[Flow]:
    """Return the rows that look connections up and remember them.

    `sends` are the rows by which table `output` sends packets.
    """
    states = (_drop_misfits(row) if tracking.holds_replies else row for row in _make_state_flows())
    return [
        *_make_look_up_flows(tracking),
        *states,
        *_second_pass(),
        *_finds_ends(tracking.zone),
        *_make_remember_flows(tracking.zone),
        *_make_send_flows(sends),
    ]


def _drop_misfits(row: Flow) -> Flow:
    """Return a row of `state` that drops packets which do not fit their connection.

    They go against its direction, or show nothing of it.
    """
    return replace(row, instructions=DROP) if row.priority in (_Order.REPLY, _Order.ASIDE) else row


def _make_flow(table: Table, priority: int, terms: list[Term], what: bytes = DROP) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, _STRUCTURE)


def _is(state: State, *, without: State | None = None) -> Term:
    """Packets whose connection was looked up and has these bits, and lacks others."""
    asked = State.TRACKED | state
    return Term(oxm.CT_STATE, int(asked), int(asked if without is None else asked | without))


def _make_look_up_flows(tracking: Tracking) -> Iterator[Flow]:
    unknown = Term(oxm.CT_STATE, 0, int(State.TRACKED))
    look_up = _FIND_ENDS if tracking.is_mixed else instructions([track(tracking.zone, Table.STATE)])
    for version in (IPV4, IPV6):
        yield _make_flow(Table.LIFTED, TRACK_PRIORITY, [unknown, Term(oxm.ETH_TYPE, version)], look_up)


_FIND_ENDS = instructions([set_field(ASKS.field, Asks.PLACING)], goto=Table.ALONE_OPERATOR)


def _match_asks(bits: Asks, among: Asks) -> Term:
    return Term(ASKS.field, int(bits), int(among))


def _finds_ends(zone: int) -> Iterator[Flow]:
    """The way of a packet that finds out which ends decide alone."""
    source, destination = pipeline.SOURCE_TENANT.field, pipeline.DESTINATION_TENANT.field
    for table in (Table.ALONE_EGRESS, Table.ALONE_INGRESS):
        yield _make_flow(table, STATIC_PRIORITY, [_match_asks(Asks.OPERATOR, Asks.OPERATOR)], ASK_LISTS[table])
        yield _make_flow(table, MISS_PRIORITY, [], ASK_LISTS[table])
    yield _make_flow(Table.ALONE_OPERATOR, MISS_PRIORITY, [], instructions(goto=Table.ALONE_EGRESS))
    yield _make_flow(Table.ALONE_EGRESS, STATIC_PRIORITY + 1, [Term(source, 0)], instructions(goto=Table.LOCAL))
    diverted = [_match_asks(Asks.PLACING, Asks.PLACING), Term(pipeline.OPERATOR_PERMIT.field, 0)]
    yield _make_flow(Table.INGRESS, STATIC_PRIORITY + 2, diverted, instructions(goto=Table.ALONE_INGRESS))
    placed = [_match_asks(Asks.PLACED, Asks.PLACED)]
    yield _make_flow(Table.LOCAL, _SECOND_PASS_PRIORITY, placed, instructions(goto=Table.RECEIVER_PORTS))
    found = Asks.PLACING | Asks.BOTH
    yield _make_flow(Table.OUTPUT, 40, [_match_asks(Asks.PLACING, found)], instructions(goto=Table.SEND))
    for asks, forgotten in ((Asks.SENDER, [destination]), (Asks.RECEIVER, [source]), (Asks.BOTH, [])):
        noted = [*(set_field(each, 0) for each in forgotten), set_field(ASKS.field, Asks.PLACED | asks)]
        look_up = instructions([*noted, track(zone, Table.STATE)])
        for version in (IPV4, IPV6):
            terms = [_match_asks(Asks.PLACING | asks, found), Term(oxm.ETH_TYPE, version)]
            yield _make_flow(Table.OUTPUT, 40, terms, look_up)


def _make_state_flows() -> Iterator[Flow]:
    table, new, reply = Table.STATE, _is(State.NEW), _is(State.REPLY)
    opening, answers_nothing = Term(oxm.TCP_FLAGS, _SYN, _SYN | _ACK), Term(oxm.TCP_FLAGS, 0, _RST | _ACK)
    to_lists = instructions(goto=Table.LIFTED)
    past_lifted = instructions(goto=Table.OPERATOR)
    yield _make_flow(table, _Order.INVALID, [_is(State.INVALID)])
    yield from _half_known()
    yield _make_flow(table, _Order.REPLY, [reply], instructions([set_field(pipeline.REPLY.field, 1)], goto=Table.LOCAL))
    for version in (IPV4, IPV6):
        tcp = [Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, TCP)]
        later = [Term(oxm.ETH_TYPE, version), Term(oxm.IP_FRAG, oxm.NOT_LATER_MASK, oxm.NOT_LATER_MASK)]
        yield _make_flow(table, _Order.REOPENED, [*tcp, answers_nothing, reply])
        yield _make_flow(table, _Order.OPENS, [*tcp, opening, new, Term(oxm.CT_MARK, 0)], to_lists)
        afresh = instructions([track(NOTHING_KNOWN, Table.LIFTED)])
        yield _make_flow(table, _Order.AFRESH, [*tcp, opening, new], afresh)
        yield _make_flow(table, _Order.MIDSTREAM, [*tcp, new])
        yield _make_flow(table, _Order.ASIDE, [*later, _is(State(0))], past_lifted)
    yield _make_flow(table, _Order.ASIDE, [_is(State.RELATED)], past_lifted)
    yield _make_flow(table, _Order.KNOWN, [_is(State(0))], to_lists)
    yield _make_flow(table, MISS_PRIORITY, [])


def _half_known() -> Iterator[Flow]:
    """Yield rows for connections that one end of this switch may not know.

    Also for those of which nothing is shown.
    """
    table, back, ahead = Table.STATE, _is(State.REPLY), _is(State(0), without=State.REPLY | State.NEW)
    about = _is(State.RELATED, without=State.REPLY)
    for known, left in ((BY_SENDER, Asks.RECEIVER), (BY_RECEIVER, Asks.SENDER)):
        mark, end, other = (
            Term(oxm.CT_MARK, known, _ANY_MARK),
            _match_asks(left, left),
            _match_asks(left ^ Asks.BOTH, left ^ Asks.BOTH),
        )
        yield _make_flow(table, _Order.HALF_KNOWN, [_is(State(0)), mark, _match_asks(Asks(0), Asks.PLACED)], _FIND_ENDS)
        yield _make_flow(table, _Order.UNKNOWN, [back, mark, other])
        yield _make_flow(table, _Order.UNKNOWN, [about, mark, end])
        for version in (IPV4, IPV6):
            tcp = [Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, TCP)]
            yield _make_flow(table, _Order.UNKNOWN, [*tcp, ahead, mark, end])
    for version in (IPV4, IPV6):
        yield _make_flow(table, _Order.INVALID, [Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, 0)])


def _second_pass() -> Iterator[Flow]:
    """The ways of a reply between the tables that ask lists."""
    first, second = Term(pipeline.REPLY.field, 1), Term(pipeline.REPLY.field, 2)
    source, destination = pipeline.SOURCE_TENANT.field, pipeline.DESTINATION_TENANT.field
    to_output = instructions(goto=Table.OUTPUT)
    swapped = (
        copy_field(source, pipeline.SCRATCH.field),
        copy_field(destination, source),
        copy_field(pipeline.SCRATCH.field, destination),
        set_field(pipeline.REPLY.field, 2),
        resubmit(Table.OPERATOR),
    )
    yield _make_flow(Table.LOCAL, _SECOND_PASS_PRIORITY, [second], instructions(goto=Table.RECEIVER_PORTS))
    yield _make_flow(Table.INGRESS, STATIC_PRIORITY + 1, [first], to_output)
    yield _make_flow(Table.INGRESS, STATIC_PRIORITY, [Term(destination, 0)], to_output)
    yield _make_flow(Table.OUTPUT, 30, [first], instructions(swapped))


def _make_remember_flows(zone: int) -> Iterator[Flow]:
    new, unmarked = _is(State.NEW), Term(oxm.CT_MARK, 0)
    goes_on = _is(State(0), without=State.REPLY | State.RELATED)
    know = {Asks.SENDER: BY_SENDER, Asks.RECEIVER: BY_RECEIVER, Asks.BOTH: BY_SENDER | BY_RECEIVER}
    for version in (IPV4, IPV6):
        ip = Term(oxm.ETH_TYPE, version)
        remember = _forget_copies(open_with(zone, REMEMBERED, Table.SEND))
        yield _make_flow(Table.OUTPUT, 20, [new, unmarked, _match_asks(Asks(0), Asks.BOTH), ip], remember)
        for asks, bits in know.items():
            remember = _forget_copies(open_with(zone, bits, Table.SEND, mask=bits))
            yield _make_flow(Table.OUTPUT, 20, [new, unmarked, _match_asks(asks, Asks.BOTH), ip], remember)
        for known, left in ((BY_SENDER, Asks.RECEIVER), (BY_RECEIVER, Asks.SENDER)):
            half = [goes_on, Term(oxm.CT_MARK, known, _ANY_MARK), _match_asks(left, left), ip]
            remember = _forget_copies(open_with(zone, know[left], Table.SEND, mask=know[left]))
            yield _make_flow(Table.OUTPUT, 20, half, remember)
    yield replace(_make_flow(Table.SEND, 20, [new, unmarked]), cookie=REFUSED)


def _forget_copies(remember: bytes) -> bytes:
    """Return instructions that remember a connection without the copies of its first packet's destination.

    Else packets to each address and port would have entries of their own behind that as well.
    """
    copies = (*pipeline.FIRST_DESTINATION, pipeline.FIRST_PORT)
    return instructions([*(set_field(each.field, 0) for each in copies), remember])


def _make_send_flows(sends: tuple[Flow, ...]) -> Iterator[Flow]:
    for each in sends:
        yield replace(each, table=Table.SEND)


# ------------------------------------------------------------------------------------------- rules about connections


def _name_of(field: Field) -> int:
    """A field's header without mask and length."""
    return field.oxm_class << 16 | field.number << 9


def _map_fields(pairs: list[tuple[Field, Field]]) -> dict[int, Field]:
    return {_name_of(before): after for before, after in pairs}


_ASKED_INSTEAD = _map_fields([
    (oxm.IPV4_SRC, oxm.CT_NW_SRC), (oxm.IPV4_DST, oxm.CT_NW_DST), (oxm.IPV6_SRC, oxm.CT_IPV6_SRC),
    (oxm.IPV6_DST, oxm.CT_IPV6_DST), (oxm.IP_PROTO, oxm.CT_NW_PROTO), (oxm.TCP_SRC, oxm.CT_TP_SRC),
    (oxm.TCP_DST, oxm.CT_TP_DST), (oxm.UDP_SRC, oxm.CT_TP_SRC), (oxm.UDP_DST, oxm.CT_TP_DST),
    (oxm.ICMP_TYPE, oxm.CT_TP_SRC), (oxm.ICMP_CODE, oxm.CT_TP_DST), (oxm.ICMPV6_TYPE, oxm.CT_TP_SRC),
    (oxm.ICMPV6_CODE, oxm.CT_TP_DST),
])  # fmt: skip
"""By the header of a field without mask and length: the field of the first packet that is asked for in its place."""

_NOT_LATER = Term(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK).pack()
_KNOWN_AND_VALID = _is(State(0), without=State.INVALID).pack()
_RANK = {field: place for place, field in enumerate(oxm.FIELDS)}
_KEPT = frozenset(map(_name_of, (oxm.CONJ_ID, oxm.ETH_TYPE, *oxm.PACKET_REGISTERS)))
_SOURCES = frozenset(map(_name_of, (oxm.IPV4_SRC, oxm.IPV6_SRC)))
_OWN_SIDE = {
    _name_of(field): place
    for place, fields in enumerate(((oxm.IPV4_DST, oxm.IPV6_DST), (oxm.TCP_DST, oxm.UDP_DST)))
    for field in fields
}
"""Where `ask_copies` takes a field: the address first, then the port."""


def about_connections(flows: FlowTable) -> FlowTable:
    """Rewrite rules' rows so that they match the packet that opened the connection.

    The rows matched the packet itself.

    A fragment has the ports of its connection, so there no row asks whether it shows any.
    """
    of_lists = np.flatnonzero(np.isin(flows.table, _LIST_TABLES))
    if not len(of_lists):
        return flows
    lengths = flows.match_length.tolist()
    matches = [row.tobytes()[:length] for row, length in zip(flows.match, lengths, strict=True)]
    for row, table in zip(of_lists.tolist(), flows.table[of_lists].tolist(), strict=True):
        matches[row] = about_connection(matches[row], copies=table == Table.INGRESS)
    width = max(map(len, matches))
    padded = b"".join(match.ljust(width, b"\0") for match in matches)
    return replace(
        flows,
        match=np.frombuffer(padded, np.uint8).reshape(len(matches), width),
        match_length=np.array([len(match) for match in matches], np.uint8),
    )


def about_connection(match: bytes, *, copies: bool) -> bytes:
    """Return the match of a rule's row, about the packet that opened the connection.

    `copies`: if it names a source, it asks for copies of the destination (`ownside.py`).
    """
    kept: list[bytes] = []
    asked: list[tuple[int, bytes]] = []
    own_side: list[bytes] | None = None
    at = 0
    while at < len(match):
        end = at + 4 + match[at + 3]
        term, name = match[at:end], int.from_bytes(match[at : at + 4], "big") & 0xFFFFFE00
        at = end
        field = _ASKED_INSTEAD.get(name)
        if field is None:
            if name in _KEPT:
                kept.append(term)
            else:
                assert term == _NOT_LATER, f"{term.hex()} cannot be asked of a connection, and no rule may"
        elif own_side is not None and name in _OWN_SIDE:
            own_side[_OWN_SIDE[name]] = term
        else:
            asked.append((_RANK[field], _asked_of(field, term)))
            if copies and name in _SOURCES:  # they come before destinations
                own_side = [b"", b""]
    if not asked:
        return b"".join(kept)
    copied = b"" if own_side is None else ask_copies(*own_side)
    return b"".join([*kept, copied, _KNOWN_AND_VALID, *(term for _, term in sorted(asked))])


def _asked_of(field: Field, term: bytes) -> bytes:
    """A term with another field in its place, which may be wider."""
    masked = term[2] & 1
    size = term[3] >> masked
    if size == field.size:
        return (field.masked_header if masked else field.header).to_bytes(4, "big") + term[4:]
    assert not masked, "ICMP types and codes have no masks"
    return field.header.to_bytes(4, "big") + term[4:].rjust(field.size, b"\0")

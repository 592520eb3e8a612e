"""The program of a spread switch: 256 buckets and their owners choose the firewall.

`assign` (`scaling/buckets.py`) says who owns what; here it becomes rows. When an owner changes, what changes on the
switch is the bucket's entry in the two groups (stateless), or the bucket's one row (stateful), and nothing else: then
connections that begin are the new owner's, and those that the switch knows stay with the firewall that they began with.

Firewalls that share their connections (synchronised) need no marks: a bucket's owner owns all of its connections, both
groups hash both directions alike, and each bucket watches its owner's port. The switch asks that port whether the
firewall is well (BFD); if not, it gives the bucket to the next one that is, at once and without anybody's word.
"""

from __future__ import annotations

import enum
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import groups, oxm
from orchestrator.compile.openflow.instructions import HashFields, instructions, multipath, output, set_field
from orchestrator.compile.openflow.oxm import IPV4, IPV6, Term
from orchestrator.compile.openflow.symbols import port_table, symbols
from orchestrator.compile.openflow.tracking import begin, track
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.spread import (
    ADMITTED_PRIORITY,
    BEFORE_PRIORITY,
    BUCKET,
    FROM_INSIDE,
    FROM_INSIDE_GROUP,
    FROM_OUTSIDE_GROUP,
    INSIDE_PORT,
    OUTSIDE_PORT,
    OWNER,
    SpreadTable,
)
from orchestrator.errors import BadInput
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.scaling.buckets import BUCKETS, Owners

_HIGHEST_NUMBER = (1 << 32) - 1
_BASIS = 0
_ZONES = (1 << 16) - 1
_FRAGMENTS = (Term(oxm.IP_FRAG, oxm.ANY_FRAGMENT, oxm.ANY_FRAGMENT),)


class MemberState(enum.Enum):
    """A firewall's share of the traffic."""

    SERVING = "serving"
    """It owns buckets."""
    DRAINING = "draining"
    """It owns none any more. Its packets still go on, and a stateful one keeps the connections it has."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of a firewall's two links: the switch's interface, the firewall's MAC address.

    Several firewalls may be behind one interface, in a network that it leads to.
    """

    port: str
    mac: int


@dataclass(frozen=True, slots=True)
class Member:
    """A firewall behind the spreading switch. `weight` is its capacity, in any unit. Raises BadInput."""

    name: str
    number: int
    left: Side
    right: Side
    state: MemberState = MemberState.SERVING
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.number < _HIGHEST_NUMBER:
            raise BadInput(f"{self.number} is not a firewall's number", place="number")


@dataclass(frozen=True, slots=True)
class Spread:
    """A spread of traffic.

    Raises BadInput for members of one name or number, and owners who are none of them.

    `stateful`: the firewalls track connections, so all that belongs to one must meet the same firewall.
    `synchronised`: they share connections, too, so a bucket's owner owns its connections, and the switch gives the
    buckets of a firewall that is down to the others by itself.
    """

    members: tuple[Member, ...]
    owners: Owners
    stateful: bool = False
    synchronised: bool = False

    def __post_init__(self) -> None:
        if self.synchronised and not self.stateful:
            raise BadInput("firewalls that share connections are stateful", place="synchronised")
        for what in ({each.name for each in self.members}, {each.number for each in self.members}):
            if len(what) < len(self.members):
                raise BadInput("two firewalls have one name or number", place="members")
        self._check_links()
        may_own = {each.name for each in self.members if each.state is MemberState.SERVING}
        if len(self.owners) != BUCKETS or not {owner for owner in self.owners if owner is not None} <= may_own:
            raise BadInput("the buckets have owners that do not serve", place="owners")

    def _check_links(self) -> None:
        """Refuse links that the switch could not tell apart. Raises BadInput."""
        lefts, rights = ([each.left for each in self.members], [each.right for each in self.members])
        mixed = {each.port for each in lefts} & {each.port for each in rights}
        if mixed:
            raise BadInput(f"the port '{min(mixed)}' leads to both sides of firewalls", place="members")
        for side in (lefts, rights):
            if len({(each.port, each.mac) for each in side}) < len(side):
                raise BadInput("two firewalls have one MAC address behind the same port", place="members")
        if self.synchronised and self.shared_ports:
            raise BadInput(
                f"firewalls share the port '{min(self.shared_ports)}', and the switch asks ports whether the firewall "
                "behind them is well: give each its own",
                place="synchronised",
            )

    @property
    def shared_ports(self) -> frozenset[str]:
        """The ports that lead to several firewalls."""
        count = Counter(side.port for each in self.members for side in _sides(each))
        return frozenset(port for port, number in count.items() if number > 1)

    @property
    def shows_connections(self) -> bool:
        """Whether each firewall sees both directions of its connections, and no other knows them."""
        return self.stateful and not self.synchronised

    @property
    def by_name(self) -> Mapping[str, Member]:
        """The members by name."""
        return {each.name: each for each in self.members}


def zone_of(domain: str) -> int:
    """Return the zone of a domain's connections.

    A machine may spread several domains.
    """
    return 1 + zlib.crc32(domain.encode()) % _ZONES


def spread_program(spread: Spread, *, domain: str, generation: int) -> Program:
    """The program of a domain's spreading switch."""
    ports = port_table([OUTSIDE_PORT, INSIDE_PORT, *(side.port for each in spread.members for side in _sides(each))])
    symbol = symbols(ports)
    ways = _Ways(spread, symbol, zone_of(domain))
    rows = [
        *ways.returning(),
        *(ways.track_rows() if spread.stateful and not spread.synchronised else ways.hash_rows()),
    ]
    return Program.of(domain, Tier.SPREAD, generation, FlowTable.of(rows), ports)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Makes the rows.

    `symbol` gives a port's symbol by its name, `zone` is where connections are remembered.
    """

    spread: Spread
    symbol: Mapping[str, int]
    zone: int

    def returning(self) -> Iterator[Flow]:
        """Yield rows that send packets from a firewall to the other side.

        From a network with several firewalls that is what one of them sends to the gateway.
        """
        shared = self.spread.shared_ports
        for member in self.spread.members:
            for side, onwards in ((member.left, OUTSIDE_PORT), (member.right, INSIDE_PORT)):
                sent = (Term(oxm.ETH_SRC, side.mac), Term(oxm.ETH_DST, GATEWAY_MAC)) if side.port in shared else ()
                way = instructions([output(self.symbol[onwards])])
                yield from self._admit_packets(side.port, way, member.number, sent=sent)

    def hash_rows(self) -> Iterator[Flow]:
        """Yield the rows before stateless or synchronised firewalls: a group for each direction."""
        members, watches = self.spread.by_name, self.spread.synchronised
        for port, number, which in ((OUTSIDE_PORT, FROM_OUTSIDE_GROUP, 0), (INSIDE_PORT, FROM_INSIDE_GROUP, 1)):
            ways = {name: self._to(_sides(member)[which]) for name, member in members.items()}
            ports = {name: self.symbol[_sides(member)[which].port] for name, member in members.items()}
            buckets = (
                groups.bucket(index, ways[owner], ports[owner] if watches else None)
                if owner is not None
                else groups.bucket(index, ())
                for index, owner in enumerate(self.spread.owners)
            )
            yield groups.select_group(Tier.SPREAD, number, buckets, symmetric=watches)
            yield from self._admit_packets(port, instructions([groups.group(number)]))

    def track_rows(self) -> Iterator[Flow]:
        """Yield rows by a connection's mark, or its bucket's owner by symmetric hash."""
        for port, which in ((OUTSIDE_PORT, 0), (INSIDE_PORT, 1)):
            side = set_field(FROM_INSIDE.field, which)
            yield from self._admit_packets(port, instructions([side, track(self.zone, SpreadTable.KNOWN)]))
            yield from self._admit_packets(port, instructions([side], goto=SpreadTable.KNOWN), also=_FRAGMENTS)
        yield from _ip_packets(SpreadTable.BEGUN, (), instructions(goto=SpreadTable.DELIVERY), also=_FRAGMENTS)
        hashed = [multipath(HashFields.SYMMETRIC_L3L4, _BASIS, BUCKETS, BUCKET.field)]
        yield _make_row(SpreadTable.KNOWN, (), instructions(hashed, goto=SpreadTable.OWNERS), Kind.STRUCTURE)
        members = self.spread.by_name
        for index, owner in enumerate(self.spread.owners):
            if owner is not None:
                what = instructions([set_field(OWNER.field, members[owner].number)], goto=SpreadTable.BEGUN)
                yield _make_row(SpreadTable.OWNERS, [Term(BUCKET.field, index)], what, Kind.BUCKET, index)
        for member in members.values():
            yield from self._with(member)

    def _with(self, member: Member) -> Iterator[Flow]:
        """Yield the rows to one firewall: its connections, new ones, and forwarding."""
        number, mark = member.number, 1 + member.number
        known = instructions([set_field(OWNER.field, number)], goto=SpreadTable.DELIVERY)
        terms = [Term(oxm.CT_MARK, mark)]
        yield _make_row(SpreadTable.KNOWN, terms, known, Kind.MEMBER, number, priority=BEFORE_PRIORITY)
        begun = instructions([begin(self.zone, mark)], goto=SpreadTable.DELIVERY)
        yield from _ip_packets(SpreadTable.BEGUN, [Term(OWNER.field, number)], begun, number)
        for which, side in enumerate(_sides(member)):
            terms = [Term(FROM_INSIDE.field, which), Term(OWNER.field, number)]
            yield _make_row(SpreadTable.DELIVERY, terms, instructions(self._to(side)), Kind.MEMBER, number)

    def _admit_packets(
        self,
        port: str,
        what: bytes,
        member: int | None = None,
        *,
        sent: tuple[Term, ...] = (),
        also: tuple[Term, ...] = (),
    ) -> Iterator[Flow]:
        """Yield rows that admit IP packets that come in by a port.

        `sent` says from which sender to which receiver, `also` makes rows that go before the others.
        """
        terms = [Term(oxm.IN_PORT, self.symbol[port]), *sent]
        yield from _ip_packets(SpreadTable.ADMISSION, terms, what, member, also=also)

    def _to(self, side: Side) -> list[bytes]:
        """Send it to a firewall."""
        addressed = [set_field(oxm.ETH_SRC, GATEWAY_MAC), set_field(oxm.ETH_DST, side.mac)]
        return [*addressed, output(self.symbol[side.port])]


def _sides(member: Member) -> tuple[Side, Side]:
    """Where packets from outside enter it, and where those from inside do."""
    return member.left, member.right


def _ip_packets(
    table: SpreadTable,
    terms: Iterable[Term],
    what: bytes,
    member: int | None = None,
    *,
    also: tuple[Term, ...] = (),
) -> Iterator[Flow]:
    """Yield rows of both IP versions; more specific ones come first."""
    kind = Kind.STRUCTURE if member is None else Kind.MEMBER
    priority = BEFORE_PRIORITY if also else ADMITTED_PRIORITY
    for version in (IPV4, IPV6):
        asked = [*terms, Term(oxm.ETH_TYPE, version), *also]
        yield _make_row(table, asked, what, kind, member or 0, priority=priority)


def _make_row(
    table: SpreadTable,
    terms: Iterable[Term],
    what: bytes,
    kind: Kind,
    number: int = 0,
    *,
    priority: int = ADMITTED_PRIORITY,
) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, Cookie(Tier.SPREAD, kind, number).pack())

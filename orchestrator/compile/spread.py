"""The program of a spreading switch: which of a domain's firewalls gets a packet, by 256 buckets and their owners.

`assign` (`scaling/buckets.py`) says who owns what; here it becomes rows. When an owner changes, what changes on the
switch is the bucket's entry in the two groups (stateless), or the bucket's one row (stateful), and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.compile import groups, oxm
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.instructions import DROP, HashFields, instructions, multipath, output, resubmit, set_field
from orchestrator.compile.learning import Learned, learn_connection
from orchestrator.compile.oxm import IPV4, IPV6, Term
from orchestrator.compile.pipeline import GATEWAY_MAC
from orchestrator.compile.spreadpipeline import (
    ADMITTED_PRIORITY,
    BUCKET,
    FORMER_PRIORITY,
    FROM_INSIDE,
    FROM_INSIDE_GROUP,
    FROM_OUTSIDE_GROUP,
    INSIDE_PORT,
    KNOWN_PRIORITY,
    NEW_PRIORITY,
    NOTED,
    NOTED_COOKIE,
    OUTSIDE_PORT,
    OWNER,
    SpreadTable,
)
from orchestrator.compile.symbols import port_table, symbols
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.scaling.buckets import BUCKETS, NOBODY, Owners

_HIGHEST_NUMBER = (1 << 32) - 1
_BASIS = 0
_SYN, _SYN_ACK = 0x02, 0x12
_NOTED_IDLE_S, _NOTED_CLOSED_S = 900, 10
"""A note outlives any draining; one of a connection that was closed need not."""


class MemberState(enum.Enum):
    """What a firewall gets of the traffic."""

    SERVING = "serving"
    """It owns buckets."""
    DRAINING = "draining"
    """It owns none any more. What comes out of it still goes on, and a stateful one keeps the connections it has."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of a firewall's two links: the switch's interface, and the MAC address at the firewall's end."""

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
    """How traffic is spread. Raises BadInput for members of one name or number, and owners who are none of them.

    `stateful`: the firewalls track connections, so both directions of one must meet the same firewall. Then `former`
    says which draining one owned a bucket before, and keeps what began with it.
    """

    members: tuple[Member, ...]
    owners: Owners
    stateful: bool = False
    former: Owners = NOBODY

    def __post_init__(self) -> None:
        for what in ({each.name for each in self.members}, {each.number for each in self.members}):
            if len(what) < len(self.members):
                raise BadInput("two firewalls have one name or number", place="members")
        may_own = {each.name for each in self.members if each.state is MemberState.SERVING}
        if len(self.owners) != BUCKETS or not {owner for owner in self.owners if owner is not None} <= may_own:
            raise BadInput("the buckets have owners that do not serve", place="owners")
        drain = {each.name for each in self.members} - may_own
        if len(self.former) != BUCKETS or not {owner for owner in self.former if owner is not None} <= drain:
            raise BadInput("the buckets had owners that do not drain", place="former")

    @property
    def by_name(self) -> Mapping[str, Member]:
        """The members by name."""
        return {each.name: each for each in self.members}


def spread_program(spread: Spread, *, domain: str, generation: int) -> Program:
    """The program of a domain's spreading switch."""
    ports = port_table([OUTSIDE_PORT, INSIDE_PORT, *(side.port for each in spread.members for side in _sides(each))])
    symbol = symbols(ports)
    ways = _Ways(spread, symbol)
    rows = [*ways.returning(), *(ways.tracked() if spread.stateful else ways.hashed())]
    return Program.of(domain, Tier.SPREAD, generation, FlowTable.of(rows), ports)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Makes the rows; `symbol` gives a port's symbol by its name."""

    spread: Spread
    symbol: Mapping[str, int]

    def returning(self) -> Iterator[Flow]:
        """What comes out of a firewall goes on to the other side."""
        for member in self.spread.members:
            for side, onwards in ((member.left, OUTSIDE_PORT), (member.right, INSIDE_PORT)):
                yield from self._admitted(side.port, instructions([output(self.symbol[onwards])]), member.number)

    def hashed(self) -> Iterator[Flow]:
        """Stateless: a group for each direction."""
        members = self.spread.by_name
        for port, number, which in ((OUTSIDE_PORT, FROM_OUTSIDE_GROUP, 0), (INSIDE_PORT, FROM_INSIDE_GROUP, 1)):
            ways = {name: self._to(_sides(member)[which]) for name, member in members.items()}
            buckets = (groups.bucket(index, ways[owner] if owner is not None else ())
                       for index, owner in enumerate(self.spread.owners))  # fmt: skip
            yield groups.select_group(Tier.SPREAD, number, buckets)
            yield from self._admitted(port, instructions([groups.group(number)]))

    def tracked(self) -> Iterator[Flow]:
        """Stateful: the bucket by a symmetric hash, its owner, the owner's port on this side."""
        for port, which in ((OUTSIDE_PORT, 0), (INSIDE_PORT, 1)):
            noted = [set_field(FROM_INSIDE.field, which)]
            yield from self._admitted(port, instructions(noted, goto=SpreadTable.HASH))
        hashed = [multipath(HashFields.SYMMETRIC_L3L4, _BASIS, BUCKETS, BUCKET.field)]
        if any(self.spread.former):
            hashed.append(resubmit(SpreadTable.NOTED))
        yield _row(SpreadTable.HASH, (), instructions(hashed, goto=SpreadTable.OWNERS), Kind.STRUCTURE)
        members = self.spread.by_name
        for index, (owner, former) in enumerate(zip(self.spread.owners, self.spread.former, strict=True)):
            if owner is not None:
                terms = [Term(BUCKET.field, index)]
                yield _row(SpreadTable.OWNERS, terms, _owned_by(members[owner]), Kind.BUCKET, index)
            if former is not None:
                yield from self._changing_hands(index, members.get(owner or ""), members[former])
        for member in members.values():
            for which, side in enumerate(_sides(member)):
                terms = [Term(FROM_INSIDE.field, which), Term(OWNER.field, member.number)]
                yield _row(SpreadTable.DELIVERY, terms, instructions(self._to(side)), Kind.MEMBER, member.number)

    def _changing_hands(self, bucket: int, owner: Member | None, former: Member) -> Iterator[Flow]:
        """A bucket whose former owner drains: what begins now is the owner's, what began before stays where it is."""
        bucket_is = Term(BUCKET.field, bucket)
        yield _row(SpreadTable.OWNERS, [bucket_is], _owned_by(former), Kind.BUCKET, bucket, priority=FORMER_PRIORITY)
        for each in self.spread.members:
            terms = [bucket_is, Term(NOTED.field, 1 + each.number)]
            yield _row(SpreadTable.OWNERS, terms, _owned_by(each), Kind.BUCKET, bucket, priority=KNOWN_PRIORITY)
        for family, version in ((Family.IPV4, IPV4), (Family.IPV6, IPV6)):
            begins = [
                bucket_is, Term(oxm.ETH_TYPE, version), Term(oxm.IP_PROTO, TCP), Term(oxm.TCP_FLAGS, _SYN, _SYN_ACK),
            ]  # fmt: skip
            what = DROP if owner is None else _owned_by(owner, noted=_note(family, owner))
            yield _row(SpreadTable.OWNERS, begins, what, Kind.BUCKET, bucket, priority=NEW_PRIORITY)

    def _admitted(self, port: str, what: bytes, member: int | None = None) -> Iterator[Flow]:
        """IP packets that come in by a port."""
        for version in (IPV4, IPV6):
            terms = [Term(oxm.IN_PORT, self.symbol[port]), Term(oxm.ETH_TYPE, version)]
            kind = Kind.STRUCTURE if member is None else Kind.MEMBER
            yield _row(SpreadTable.ADMISSION, terms, what, kind, member or 0)

    def _to(self, side: Side) -> list[bytes]:
        """Send it to a firewall."""
        addressed = [set_field(oxm.ETH_SRC, GATEWAY_MAC), set_field(oxm.ETH_DST, side.mac)]
        return [*addressed, output(self.symbol[side.port])]


def _sides(member: Member) -> tuple[Side, Side]:
    """Where packets from outside enter it, and where those from inside do."""
    return member.left, member.right


def _owned_by(member: Member, noted: Iterable[bytes] = ()) -> bytes:
    """Deliver it to a firewall, once that was noted."""
    return instructions([*noted, set_field(OWNER.field, member.number)], goto=SpreadTable.DELIVERY)


def _note(family: Family, owner: Member) -> tuple[bytes, bytes]:
    """Note both directions of a connection that begins as its owner's."""
    how = Learned(SpreadTable.NOTED, ADMITTED_PRIORITY, NOTED_COOKIE, _NOTED_IDLE_S, _NOTED_CLOSED_S)
    return learn_connection(family, how, NOTED.field, 1 + owner.number)


def _row(
    table: SpreadTable,
    terms: Iterable[Term],
    what: bytes,
    kind: Kind,
    number: int = 0,
    *,
    priority: int = ADMITTED_PRIORITY,
) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, Cookie(Tier.SPREAD, kind, number).pack())

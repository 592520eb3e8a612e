"""Expectations: what a list must permit and must deny, checked for all packets at once.

    alice reaches web1:443                 every packet that opens such a connection is permitted
    nobody reaches db1:22 from outside     no packet that could open one is permitted

An expectation names sets of packets, as boxes of packet space. It is held to the lists that decide them: of a packet
to one of the tenant's addresses the ingress list, of one from such an address the egress list, of one between two of
them both; in front of each the operator's rules. Both lists of the last case become one list that decides the same:

    egress      ingress                 together
    permit a    permit b                permit a and b, deny a and the rest     (each permit of the egress list is
    deny rest   deny rest               deny rest                                replaced by its part of the ingress)

Of each row of the list that answers otherwise than expected, `cover` tells whether the rows before it hold all that
the box and the row share. Where one does not, a packet shows it. So an answer is exact and never a sample; what is not
decided within the limits of work raises TooLarge.

*To reach* is to open: of TCP a segment with SYN and without ACK and RST, of other protocols every packet. An
expectation that something is reached speaks of ordinary opening packets: TCP flags SYN, perhaps ECE and CWR, source
ports from 1024 on, no DSCP, ICMP echo requests for `ping`. One that nothing is reached speaks of every packet that
could open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy import spans
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.cover import DEFAULT_LIMITS, HELD, UNDECIDED, Cover, Limits
from orchestrator.policy.dscp import EVERY_CODE_POINT
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    Tenant,
    TenantId,
    members,
    spans_of,
)
from orchestrator.policy.neighbours import near_changes
from orchestrator.policy.oracle import Decision, decide
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import TCP, WITH_PORTS, only_family
from orchestrator.policy.rulelist import Row, RuleList, rule_lists
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box, boxes_of
from orchestrator.policy.space.box import settle_box
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

MOST_ROWS = 100_000
"""Rows of two lists together; more are not tried."""

_SYN, _ACK, _RST = TcpFlag.SYN, TcpFlag.ACK, TcpFlag.RST
_COULD_OPEN = FlagMatch(_SYN, _SYN | _ACK | _RST)
_OPENS = FlagMatch(_SYN, _SYN | _ACK | _RST | TcpFlag.FIN | TcpFlag.PSH | TcpFlag.URG)
_CLIENT_PORTS = (Span(1024, HIGHEST_PORT),)
_ECHO_REQUEST = {Family.IPV4: 8, Family.IPV6: 128}


@dataclass(frozen=True, slots=True)
class Service:
    """A protocol (None: all) with destination ports, or echo requests of either family."""

    protocol: int | None = None
    ports: tuple[PortRange, ...] = EVERY_PORT
    ping: bool = False

    def __post_init__(self) -> None:
        if self.ports != EVERY_PORT and self.protocol not in WITH_PORTS:
            raise BadInput("only tcp, udp and sctp have ports")


ANYTHING = Service()


@dataclass(frozen=True, slots=True)
class Place:
    """One end of an expectation: names, prefixes, groups as `@name`.

    Empty: everybody; `outside`: none of the own.
    """

    names: tuple[str, ...] = ()
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an expectation: addresses and a service."""

    place: Place
    service: Service


@dataclass(frozen=True, slots=True)
class Expectation:
    """One sentence: `source` less `besides` reaches every target, or none of the targets.

    `place` is the sentence's.
    """

    text: str
    place: str
    reaches: bool
    source: Place
    targets: tuple[Target, ...]
    besides: Place | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """The context of a list: the tenant's prefixes, named addresses, the operator's rules."""

    own: tuple[Prefix, ...]
    names: Mapping[str, tuple[Prefix, ...]] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    operator: tuple[Rule, ...] = ()
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a list keeps an expectation, and if not, a packet with its decision.

    That packet is decided otherwise than expected.
    """

    expectation: Expectation
    witness: Packet | None
    decision: Decision | None

    @property
    def kept(self) -> bool:
        return self.witness is None


def newly_broken(
    expectations: Sequence[Expectation], before: Acl, after: Acl, setting: Setting, limits: Limits = DEFAULT_LIMITS
) -> tuple[Outcome, ...]:
    """The expectations that a list breaks and the list before it kept, in their order.

    Raises as `judge`.

    A packet fares otherwise only if a changed rule matches it, so where few were changed only their packets are asked
    about, in the rules that may meet them: a small change of a long list costs what it touches.
    """
    near = near_changes(before, after)
    if near is None:
        broken = [each for each in judge(expectations, after, setting, limits) if not each.kept]
    else:
        found = judge(expectations, near.after, setting, limits, within=near.changed)
        broken = [each for each in found if not each.kept]
    was = judge([each.expectation for each in broken], before, setting, limits) if broken else ()
    return tuple(now for now, then in zip(broken, was, strict=True) if then.kept)


def judge(
    expectations: Sequence[Expectation],
    acl: Acl,
    setting: Setting,
    limits: Limits = DEFAULT_LIMITS,
    *,
    within: Sequence[Rule] | None = None,
) -> tuple[Outcome, ...]:
    """Check a list against expectations, in their order.

    With `within`, only packets that these rules match are asked about.

    Raises BadInput for a name that stands for nothing, and for packets that the tenant's list does not decide;
    TooLarge for what is not decided within the limits. The place of both is that of the expectation.
    """
    lists = _Lists(acl, setting)
    matched = (
        None if within is None else [(rule.direction, box) for rule in within for box in boxes_of(rule, acl.groups)]
    )
    policy = Policy(
        (Tenant(TenantId("tenant"), 1, setting.own, acl),),
        setting.operator,
        {rule.id: number for number, rule in enumerate(setting.operator, 1)},
        setting.returns,
    )
    found = []
    for expectation in expectations:
        try:
            packet = _find_counterexample(expectation, lists, setting, limits, matched)
        except (BadInput, TooLarge) as error:
            raise error.within(expectation.place) from None
        found.append(Outcome(expectation, packet, decide(policy, packet) if packet else None))
    return tuple(found)


def packets_of(expectation: Expectation, acl: Acl, setting: Setting) -> tuple[Box, ...]:
    """The packets that an expectation speaks of, as disjoint boxes in each IP version.

    Raises BadInput.
    """
    lists = _Lists(acl, setting)
    return tuple(box for box, _ in _boxes_to_check(expectation, lists, setting))


def _find_counterexample(
    expectation: Expectation,
    lists: _Lists,
    setting: Setting,
    limits: Limits,
    matched: Sequence[tuple[Direction, Box]] | None,
) -> Packet | None:
    for whole, ways in _boxes_to_check(expectation, lists, setting):
        boxes: Iterable[Box | None] = (whole,)
        if matched is not None:
            boxes = [whole.intersect(box) for way, box in matched if way in ways]
        for box in boxes:
            found = None if box is None else _find_decided(lists.rows(box, ways), not expectation.reaches, limits)
            if found is not None:
                return found
    return None


# ------------------------------------------------------------------------------------------- packets of a sentence


def _boxes_to_check(
    expectation: Expectation, lists: _Lists, setting: Setting
) -> Iterator[tuple[Box, tuple[Direction, ...]]]:
    """The boxes that an expectation speaks of, each with the lists that decide it.

    Raises BadInput.
    """
    found = False
    for target in expectation.targets:
        for family in Family:
            far = _members(expectation.source, family, lists, setting)
            if expectation.besides is not None:
                far = spans.minus(far, _members(expectation.besides, family, lists, setting))
            near = _members(target.place, family, lists, setting)
            own = spans_of(setting.own, family)
            for source, sends in ((spans.intersect(far, own), True), (spans.minus(far, own), False)):
                for destination, receives in ((spans.intersect(near, own), True), (spans.minus(near, own), False)):
                    ways = ((Direction.EGRESS,) if sends else ()) + ((Direction.INGRESS,) if receives else ())
                    if source and destination and ways:
                        for box in _boxes(family, source, destination, target.service, reaches=expectation.reaches):
                            found = True
                            yield box, ways
    if not found:
        raise BadInput(
            "it speaks of no packet that your list decides: one end must be an address of yours, both of one IP version"
        )


def _members(place: Place, family: Family, lists: _Lists, setting: Setting) -> Spans:
    """The addresses of one end in an IP version.

    Raises BadInput for a name that stands for nothing.
    """
    named = [each for name in place.names for each in _find_spans(name, family, lists, setting)]
    found = spans.union(named) if place.names else ALL_ADDRESSES[family]
    return spans.minus(found, spans_of(setting.own, family)) if place.outside else found


def _find_spans(name: str, family: Family, lists: _Lists, setting: Setting) -> Spans:
    if name in setting.names:
        return spans_of(setting.names[name], family)
    if name.startswith("@"):
        if name[1:] not in lists.acl.groups:
            raise BadInput(f"the list has no address group '{name[1:]}'")
        return members(Addresses((), (name[1:],)), lists.acl.groups, family)
    if name[0].isdigit() or ":" in name:
        return spans_of((Prefix.parse(name),), family)
    raise BadInput(f"'{name}' is nobody that is known: say what it is, as in `{name} is 192.0.2.10`")


def _boxes(family: Family, source: Spans, destination: Spans, service: Service, *, reaches: bool) -> Iterator[Box]:
    """Yield boxes of packets between two address sets that may open a service."""
    whole = Box(family, source=source, destination=destination, dscp=1 if reaches else EVERY_CODE_POINT)
    if service.ping:
        kinds = 1 << _ECHO_REQUEST[family]
        yield from _settle_box(whole._replace(fragments=WHOLE, protocols=1 << OWN_ICMP[family], icmp_types=kinds))
        return
    if only_family(service.protocol) not in (None, family):
        return
    protocols = ALL_BYTES if service.protocol is None else 1 << service.protocol
    if protocols >> TCP & 1:
        opening = _OPENS if reaches else _COULD_OPEN
        flags = sum(1 << byte for byte in range(256) if opening.holds(byte))
        yield from _settle_box(_add_ports(whole, service, reaches)._replace(protocols=1 << TCP, tcp_flags=flags))
    others = protocols & ~(1 << TCP)
    if others:
        box = whole._replace(protocols=others)
        yield from _settle_box(_add_ports(box, service, reaches) if service.protocol in WITH_PORTS else box)
    if (
        service == ANYTHING and family is Family.IPV4
    ):  # later fragments of TCP; those of IPv6 have a protocol of their own
        yield from _settle_box(whole._replace(protocols=1 << TCP, fragments=LATER))


def _add_ports(box: Box, service: Service, reaches: bool) -> Box:
    """Narrow a box to a service's ports, asked by clients or by anybody."""
    ports = tuple(Span(each.low, each.high) for each in service.ports)
    clients = _CLIENT_PORTS if reaches else ALL_PORTS
    return box._replace(fragments=WHOLE, source_ports=clients, destination_ports=ports)


def _settle_box(box: Box) -> Iterator[Box]:
    found = settle_box(box)
    if found is not None:
        yield found


# --------------------------------------------------------------------------------------------------- what decides


class _Lists:
    """A tenant's two lists as rows behind the operator's rules, made when asked for."""

    def __init__(self, acl: Acl, setting: Setting) -> None:
        self.acl = acl
        self._setting = setting
        self._rows: dict[Direction, Mapping[Family, RuleList]] = {}

    def rows(self, box: Box, ways: Iterable[Direction]) -> Sequence[Row]:
        """Return one list that decides a box's packets as all lists of `ways` do.

        Raises TooLarge.
        """
        first, *more = [self._meeting(box, way) for way in ways]
        for other in more:
            first = _together(first, other)
        return first

    def _meeting(self, box: Box, way: Direction) -> Sequence[Row]:
        """The rows of a list that meet a box, cut to it."""
        if way not in self._rows:
            self._rows[way] = rule_lists(self.acl, way, returns=self._setting.returns)
        operator = [
            Row(each, rule.action is Action.PERMIT, rule, -1)
            for rule in self._setting.operator
            for each in boxes_of(rule, {})
            if each.family is box.family
        ]
        listed = self._rows[way][box.family]
        return _cut_to(box, (*operator, *(listed.rows[number] for number in listed.answering(box))))


def _cut_to(box: Box, rows: Iterable[Row]) -> list[Row]:
    """Cut rows to a box, up to the first row that covers all of it."""
    found = []
    for row in rows:
        share = row.box.intersect(box)
        if share is not None:
            found.append(Row(share, row.permit, row.rule, row.position))
            if share == box:
                break
    return found


def _together(first: Sequence[Row], second: Sequence[Row]) -> Sequence[Row]:
    """Return one list that permits what both lists permit.

    Each permit of the first is replaced by its part of the second.
    """
    found: list[Row] = []
    for row in first:
        found += _cut_to(row.box, second) if row.permit else (row,)
        if len(found) > MOST_ROWS:
            raise TooLarge(f"both lists together have more than {MOST_ROWS} rows for it: name fewer addresses")
    return found


def _find_decided(rows: Sequence[Row], permit: bool, limits: Limits) -> Packet | None:
    """Return a packet that a list decides as `permit`, by first match, or None.

    Raises TooLarge.
    """
    if all(row.permit is not permit for row in rows):
        return None
    cover = Cover([row.box for row in rows], limits)
    state, points = cover.find_covered()
    undecided = False
    for number, row in enumerate(rows):
        if row.permit is not permit or state[number] == HELD:
            continue
        if state[number] == UNDECIDED:
            undecided = True
            continue
        plain = row.box.witness()
        if any(earlier.box.holds(plain) for earlier in rows[:number]):
            return cover.coordinates.packet([int(rank) for rank in points[number]])
        return plain
    if undecided:
        raise TooLarge("it was not decided within the limits of work: name fewer addresses")
    return None

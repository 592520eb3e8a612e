"""Choose packets that test an access list: for each rule one that it decides.

    aims(acl, ...)  ──▶  Aim: direction, packet, the rule that decides, whether it permits
    description(aims)  ──▶  a point of presence whose endpoints have the addresses that these packets need

Not every packet can travel between two nodes of a lab: nobody has a multicast address, an IPv6 extension header is no
upper-layer protocol, neighbour discovery is answered by the switch, and an address is on one side only. `_World` says
what is left, and prefers addresses and ports that a reader knows where the rule leaves the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.lab.spec import (
    CLIENT_MACS,
    ENDPOINT_MACS,
    HOST_DATAPATHS,
    ClientSpec,
    EndpointSpec,
    HostSpec,
    PopSpec,
    TenantSpec,
)
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, RuleId, TenantId
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.rulelist import RuleList, rule_lists
from orchestrator.policy.space import Box, everything, search
from orchestrator.policy.spans import Span, Spans, minus, union

TENANT = TenantId("owner")
OUTSIDE = "outside"
DOMAIN = "pop1"

Item = TypeVar("Item")

_MOST_TRIES = 1000
"""Candidates looked at for one rule before giving it up: a rule that others hide may never decide anything."""
_FEW_TRIES = 20
"""Candidates looked at for a packet that reads well."""

_EXTENSION_HEADERS = (0, 43, 51, 59, 60, 135, 139, 140)
_SWITCH_ANSWERS = range(130, 138)
"""ICMPv6 types of neighbour and listener discovery."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A packet and its verdict.

    `rule` is the first match, None where the default decides.
    """

    direction: Direction
    packet: Packet
    rule: RuleId | None
    permit: bool

    @property
    def inside(self) -> int:
        """The address on the tenant's side."""
        return self.packet.destination if self.direction is Direction.INGRESS else self.packet.source

    @property
    def outside(self) -> int:
        """The address on the other side."""
        return self.packet.source if self.direction is Direction.INGRESS else self.packet.destination


def aims(acl: Acl, returns: ReturnTraffic, most: int) -> tuple[Aim, ...]:
    """Return at most `most` packets, in the list's order.

    Half of them are permitted where the list has both verdicts.
    """
    found: list[Aim] = []
    for direction in Direction:
        for family, rows in rule_lists(acl, direction, returns=returns).items():
            world = _World(direction, family, found)
            for number in _spread(range(len(rows)), 3 * most):
                packet = world.packet_for(rows, number)
                if packet is not None:
                    step = ask(acl, packet, direction, returns)
                    world.add(Aim(direction, packet, step.rule, step.action is Action.PERMIT))
            found = world.found
    return _balance_verdicts(found, most)


@dataclass(frozen=True, slots=True)
class _Taste:
    """Where to look for a packet: addresses of either side, and ports."""

    inside: Spans
    outside: Spans
    source_ports: Spans = (Span(0, HIGHEST_PORT),)
    destination_ports: Spans = (Span(0, HIGHEST_PORT),)


def _tastes(inside: Spans, outside: Spans, unicast: Spans) -> tuple[_Taste, ...]:
    """Return the choices of packets, from what reads best to what is possible at all."""
    ports: tuple[Spans, Spans] = (Span(40000, 49999),), (Span(1, HIGHEST_PORT),)
    sides = ((inside, outside), (inside, unicast), (unicast, outside), (unicast, unicast))
    return (*(_Taste(here, there, *ports) for here, there in sides), _Taste(unicast, unicast))


def _make_span(first: str, last: str) -> Span:
    return Span(Prefix.parse(first).network, Prefix.parse(last).network)


_TASTES = {
    Family.IPV4: _tastes(
        inside=(_make_span("198.51.100.1", "198.51.100.254"),),
        outside=(_make_span("192.0.2.1", "192.0.2.254"),),
        unicast=(_make_span("1.0.0.0", "126.255.255.255"), _make_span("128.0.0.0", "223.255.255.255")),
    ),
    Family.IPV6: _tastes(
        inside=(_make_span("2001:db8:100::1", "2001:db8:100::ffff"),),
        outside=(_make_span("2001:db8:ffff::1", "2001:db8:ffff::ffff"),),
        unicast=(_make_span("1::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),),
    ),
}


class _World:
    """The packets of one direction and IP version, with those chosen so far."""

    def __init__(self, direction: Direction, family: Family, found: Iterable[Aim]) -> None:
        self._direction = direction
        self._family = family
        self.found: list[Aim] = []
        self._inside: Spans = ()
        self._outside: Spans = ()
        for aim in found:
            self.add(aim)

    def add(self, aim: Aim) -> None:
        """Remember a packet that was chosen: its addresses keep their sides."""
        self.found.append(aim)
        if aim.packet.family is self._family:
            self._inside = union((*self._inside, Span(aim.inside, aim.inside)))
            self._outside = union((*self._outside, Span(aim.outside, aim.outside)))

    def packet_for(self, rows: RuleList, number: int) -> Packet | None:
        """A packet that a row decides; None where none was found."""
        *fine, plain = (self._draw_box(taste) for taste in _TASTES[self._family])
        found = _first_matched(rows, number, plain, _MOST_TRIES)
        if found is None:
            return None
        good = (_first_matched(rows, number, box, _FEW_TRIES) for box in fine)
        return next((packet for packet in good if packet is not None), found)

    def _draw_box(self, taste: _Taste) -> Box:
        inside, outside = minus(taste.inside, self._outside), minus(taste.outside, self._inside)
        source, destination = (outside, inside) if self._direction is Direction.INGRESS else (inside, outside)
        box = everything(self._family)._replace(
            source=source,
            destination=destination,
            source_ports=taste.source_ports,
            destination_ports=taste.destination_ports,
        )
        if self._family is Family.IPV4:
            return box
        return box._replace(
            protocols=box.protocols & ~_make_bits(_EXTENSION_HEADERS),
            icmp_types=box.icmp_types & ~_make_bits(_SWITCH_ANSWERS),
        )


def _first_matched(rows: RuleList, number: int, world: Box, most_tries: int) -> Packet | None:
    """Return a packet of `world` that row `number` decides, or None after `most_tries` candidates."""
    box = rows.rows[number].box.intersect(world)
    if box is None:
        return None
    near = rows.near(box)
    finder = rows.finder(near[near < number])
    tries = 0

    def find_ruled_out(packet: Packet) -> Box | None:
        nonlocal tries
        tries += 1
        if tries > most_tries:
            return None
        earlier = finder.first(packet)
        return rows.rows[earlier].box if earlier is not None else _to_itself(box, packet)

    packet = search(box, find_ruled_out)
    return None if tries > most_tries else packet


def _to_itself(box: Box, packet: Packet) -> Box | None:
    """Return the box of packets to oneself, if the packet is one."""
    if packet.source != packet.destination:
        return None
    return box._replace(source=(Span(packet.source, packet.source),), destination=(Span(packet.source, packet.source),))


def _make_bits(members: Iterable[int]) -> int:
    return sum(1 << member for member in members)


def _balance_verdicts(found: Sequence[Aim], most: int) -> tuple[Aim, ...]:
    """Choose some of them, spread over the list, half of them permitted if possible."""
    permitted = [aim for aim in found if aim.permit]
    refused = [aim for aim in found if not aim.permit]
    chosen = set(_spread(permitted, max(most // 2, most - len(refused))))
    chosen |= set(_spread(refused, most - len(chosen)))
    return tuple(aim for aim in found if aim in chosen)


def _spread(items: Sequence[Item], count: int) -> list[Item]:
    """`count` items, evenly over the sequence, the last one among them."""
    if len(items) <= count:
        return list(items)
    return [items[(index + 1) * len(items) // count - 1] for index in range(count)]


def description(trials: Sequence[Aim]) -> PopSpec:
    """Return a point of presence for these packets: one tenant that owns everything, others outside.

    The addresses on the tenant's side are spread over an endpoint on each of two hosts. Nobody's network stack answers,
    so that counters count the trials alone.
    """
    inside = sorted({Prefix(aim.packet.family, aim.inside, aim.packet.family.bits) for aim in trials})
    shares = (inside[::2], inside[1::2])
    return PopSpec(
        domain=DOMAIN,
        clients=(ClientSpec(OUTSIDE, CLIENT_MACS + 1, (EVERY_IPV4, EVERY_IPV6), silent=True),),
        hosts=tuple(HostSpec(f"host{n}", f"{HOST_DATAPATHS + n:016x}") for n in (1, 2)),
        tenants=(TenantSpec(TENANT, (EVERY_IPV4, EVERY_IPV6)),),
        endpoints=tuple(
            EndpointSpec(f"inside{n}", TENANT, f"host{n}", f"inside{n}", ENDPOINT_MACS + n, tuple(share), silent=True)
            for n, share in enumerate(shares, 1)
            if share
        ),
    )

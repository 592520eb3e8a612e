"""Hypothesis strategies for rules, access lists, policies and the packets at their corners.

Addresses and ports come from small pools of nested and neighbouring values, so that the rules of a list overlap,
contain and touch one another nearly always; a rule drawn from the whole space would overlap nothing.

    from strategies import acls, corner_packets_of, policies, rules

`packet_kinds` goes further than corners: it lists one packet of *every* kind that some lists can tell apart, so a law
that holds for these holds for all packets. It knows nothing of boxes, and so can judge them.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.corners import corner_packets, policy_packets
from orchestrator.policy.dscp import EVERY_CODE_POINT, of_precedence
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    Endpoint,
    GroupName,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
    families,
)
from orchestrator.policy.oracle import PATH_MTU_RULES
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP, WITH_PORTS
from orchestrator.policy.space import possible
from orchestrator.policy.tcpflags import ESTABLISHED, FlagMatch

Value = TypeVar("Value")

FAR_POOL = tuple(
    map(
        Prefix.parse,
        (
            "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.128/25", "10.1.2.3/32", "10.1.3.0/24", "192.0.2.0/24",
            "0.0.0.0/1", "128.0.0.0/1", "255.255.255.255/32", "0.0.0.0/0",
            "2001:db8::/32", "2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::3/128", "2001:db8:1:3::/64",
            "8000::/1", "::/0",
        ),
    )
)  # fmt: skip
"""Prefixes for the side that is not the tenant's: nested, neighbouring, whole and single, of both versions."""

OWN_POOL = tuple(
    map(
        Prefix.parse,
        (
            "172.16.0.0/16", "172.16.1.0/24", "172.16.1.1/32", "172.16.1.2/31", "172.16.2.0/24",
            "2001:db8:a::/48", "2001:db8:a:1::/64", "2001:db8:a:1::1/128",
        ),
    )
)  # fmt: skip
"""Prefixes inside what the tenant of `acls` and the first tenant of `policies` own."""

OWNED = (Prefix.parse("172.16.0.0/16"), Prefix.parse("2001:db8:a::/48"))
"""What the tenant whose list `acls` draws owns."""

PORT_POOL = (
    PortRange(0, 0), PortRange(22, 22), PortRange(80, 80), PortRange(80, 81), PortRange(79, 443), PortRange(443, 443),
    PortRange(1024, 65535), PortRange(1, 65534), PortRange(0, 1023), PortRange(65535, 65535),
)  # fmt: skip

DSCP_POOL = (1 << 46, 1, of_precedence(5), EVERY_CODE_POINT & ~(1 << 46), 1 << 0 | 1 << 10 | 1 << 46, 0xFF00)

FLAG_POOL = (FlagMatch(0x02, 0x12), FlagMatch(0x10, 0x10), FlagMatch(0x00, 0x04), FlagMatch(0x01, 0x3F))


@functools.lru_cache(maxsize=None, typed=True)
def _one_of(*values: Value) -> SearchStrategy[Value]:
    """One of some values. Made once: a strategy is checked when it is drawn from first, longer than a draw takes."""
    return st.sampled_from(values)


def prefixes(pool: Sequence[Prefix] = FAR_POOL) -> SearchStrategy[Prefix]:
    """One prefix of a pool."""
    return _one_of(*pool)


def addresses(pool: Sequence[Prefix] = FAR_POOL, groups: Sequence[str] = ()) -> SearchStrategy[Addresses]:
    """One side of a rule: any, one prefix, several, at times a group."""
    return _addresses(tuple(pool), tuple(groups))


@functools.cache
def _addresses(pool: tuple[Prefix, ...], groups: tuple[str, ...]) -> SearchStrategy[Addresses]:
    several = st.lists(prefixes(pool), min_size=2, max_size=4, unique=True).map(lambda found: Addresses(tuple(found)))
    choices = [st.just(ANY), prefixes(pool).map(lambda prefix: Addresses((prefix,))), several, several]
    if groups:
        choices.append(st.sampled_from(groups).map(lambda name: Addresses((), (name,))))
        choices.append(st.tuples(prefixes(pool), st.sampled_from(groups)).map(lambda two: Addresses(two[:1], two[1:])))
    return st.one_of(choices)


@functools.cache
def port_lists() -> SearchStrategy[tuple[PortRange, ...]]:
    return st.one_of(
        st.just(EVERY_PORT),
        st.sampled_from(PORT_POOL).map(lambda ports: (ports,)),
        st.lists(st.sampled_from(PORT_POOL), min_size=1, max_size=3).map(tuple),
    )


@functools.cache
def _both_ports() -> SearchStrategy[tuple[tuple[PortRange, ...], tuple[PortRange, ...]]]:
    return st.tuples(port_lists(), port_lists())


@st.composite
def rules(
    draw: DrawFn,
    name: str = "r",
    direction: Direction | None = None,
    own: Sequence[Prefix] = OWN_POOL,
    far: Sequence[Prefix] = FAR_POOL,
    groups: Sequence[str] = (),
) -> Rule:
    """One valid rule, on its own side about addresses of `own`. It can match something unless its groups are empty.

    Some of a list's rules log, by their names."""
    chosen = draw(_one_of(*Direction)) if direction is None else direction
    ours, theirs = draw(addresses(own, groups)), draw(addresses(far, groups))
    protocol = draw(_one_of(None, TCP, TCP, UDP, ICMP, ICMPV6, SCTP, 47, 44))
    ports = draw(_both_ports()) if protocol in WITH_PORTS else (EVERY_PORT, EVERY_PORT)
    icmp_type = draw(_one_of(None, 0, 3, 8, 128)) if protocol in (ICMP, ICMPV6) else None
    icmp_code = draw(_one_of(None, 0, 4)) if icmp_type is not None else None
    flags = draw(_one_of(None, None, None, "established", *FLAG_POOL)) if protocol == TCP else None
    dscp = draw(_one_of(*(None,) * 12, *DSCP_POOL))
    plain = ports == (EVERY_PORT, EVERY_PORT) and icmp_type is None and flags is None
    rule = Rule(
        id=RuleId(name),
        action=draw(_one_of(*Action)),
        direction=chosen,
        protocol=protocol,
        source=theirs if chosen is Direction.INGRESS else ours,
        destination=ours if chosen is Direction.INGRESS else theirs,
        source_ports=ports[0],
        destination_ports=ports[1],
        icmp_type=icmp_type,
        icmp_code=icmp_code,
        established=flags == "established",
        tcp_flags=flags if isinstance(flags, FlagMatch) else None,
        dscp=dscp,
        fragments=plain and draw(_one_of(False, False, False, True)),
        log=name.endswith(("1", "4")),
    )
    return _of_one_version(rule)


def _of_one_version(rule: Rule) -> Rule:
    """The rule, with `any` for a side whose addresses are of another IP version than the rest of the rule."""
    choices = (
        rule,
        replace(rule, source=ANY),
        replace(rule, destination=ANY),
        replace(rule, source=ANY, destination=ANY),
    )
    sides = (rule.source, rule.destination)
    if any(side.groups for side in sides):
        return rule
    return next(choice for choice in choices if families(choice, {}))


@functools.cache
def address_groups() -> SearchStrategy[dict[str, AddressGroup]]:
    """Two groups, `ours` (own addresses) and `theirs` (far ones), either of which may be empty."""

    def group(name: str, pool: Sequence[Prefix]) -> SearchStrategy[AddressGroup]:
        members = st.lists(prefixes(pool), max_size=3, unique=True)
        return members.map(lambda found: AddressGroup(GroupName(name), tuple(found)))

    return st.fixed_dictionaries({"ours": group("ours", OWN_POOL), "theirs": group("theirs", FAR_POOL)})


_rule = functools.cache(rules)


@st.composite
def acls(
    draw: DrawFn,
    max_rules: int = 8,
    min_rules: int = 0,
    own: Sequence[Prefix] = OWN_POOL,
    far: Sequence[Prefix] = FAR_POOL,
    with_groups: bool = True,
    marked: bool = False,
) -> Acl:
    """A valid list of up to `max_rules` rules, called r0, r1, ... On the tenant's side rules name only addresses of
    `own` (and the group `ours`), so `check_ownership(acl, OWNED)` accepts it. With `marked`, some are
    stateless."""
    groups = draw(address_groups()) if with_groups else {}
    kept = [
        draw(_listed_rule(f"r{index}", tuple(own), tuple(far), with_groups))
        for index in range(draw(st.integers(min_rules, max_rules)))
    ]
    if marked:
        kept = [replace(rule, stateless=draw(st.integers(0, 2)) == 0) for rule in kept]
    return Acl(
        rules=tuple(kept),
        groups=groups,
        ingress_default=draw(_one_of(Action.DENY, Action.DENY, Action.PERMIT)),
        egress_default=draw(_one_of(Action.PERMIT, Action.PERMIT, Action.DENY)),
    )


@functools.cache
@st.composite
def _listed_rule(draw: DrawFn, name: str, own: Sequence[Prefix], far: Sequence[Prefix], with_groups: bool) -> Rule:
    """A rule of a list with the groups `ours` and `theirs`, each on its own side only."""
    direction = draw(_one_of(*Direction))
    rule = draw(_rule(name, direction, own, far))
    if with_groups and draw(st.integers(0, 4)) == 0:
        group = draw(_one_of("ours", "theirs"))
        on_source = (group == "ours") is (direction is Direction.EGRESS)
        rule = replace_side(rule, "source" if on_source else "destination", Addresses((), (group,)))
    return rule


def replace_side(rule: Rule, side: str, value: Addresses) -> Rule:
    """The rule with its `source` or `destination` replaced."""
    return replace(rule, source=value) if side == "source" else replace(rule, destination=value)


_tenants_list = functools.cache(acls)
_EVERYBODY = OWN_POOL + FAR_POOL
_FAR_OF_TENANTS = FAR_POOL + OWN_POOL[:1]


@functools.cache
def _places(index: int) -> tuple[tuple[Prefix, Prefix], tuple[Prefix, ...], tuple[Prefix, Prefix]]:
    """What a tenant owns, the pool of its own addresses, and those of its endpoint."""
    owned = (Prefix.parse(f"172.{16 + index}.0.0/16"), Prefix.parse(f"2001:db8:{10 + index:x}::/48"))
    inside = tuple(_moved(prefix, owned) for prefix in OWN_POOL)
    ends = (Prefix.parse(f"172.{16 + index}.1.1/32"), Prefix.parse(f"2001:db8:{10 + index:x}:1::1/128"))
    return owned, inside, ends


@st.composite
def policies(draw: DrawFn, max_tenants: int = 2, max_rules: int = 5, with_operator: bool = True) -> Policy:
    """A policy of 1 to `max_tenants` tenants with prefixes of both versions, numbered rules and one endpoint each.

    Tenant i is `tenant<i>`, number i + 1, its endpoint's port `t<i>p0`. At most 6 tenants."""
    tenants, endpoints = [], []
    for index in range(draw(st.integers(1, max_tenants))):
        owned, inside, ends = _places(index)
        acl = draw(_tenants_list(max_rules, own=inside, far=_FAR_OF_TENANTS, with_groups=index == 0))
        name = TenantId(f"tenant{index}")
        numbers: dict[str, int] = {rule.id: 100 * (index + 1) + position for position, rule in enumerate(acl.rules)}
        tenants.append(Tenant(name, index + 1, owned, acl, numbers))
        endpoints.append(Endpoint(f"endpoint{index}", name, f"t{index}p0", 0x020000000000 + index + 1, ends))
    operator = draw(_operator_rules()) if with_operator else ()
    return Policy(
        tenants=tuple(tenants),
        operator=operator,
        operator_numbers={rule.id: 900 + position for position, rule in enumerate(operator)},
        return_traffic=draw(_one_of(*(each for each in ReturnTraffic if each is not ReturnTraffic.TRACKED))),
        endpoints=tuple(endpoints),
    )


@functools.cache
@st.composite
def _operator_rules(draw: DrawFn) -> tuple[Rule, ...]:
    return tuple(draw(_rule(f"op{index}", None, _EVERYBODY, _EVERYBODY)) for index in range(draw(st.integers(0, 2))))


def _moved(prefix: Prefix, owned: tuple[Prefix, Prefix]) -> Prefix:
    """A prefix of OWN_POOL (inside OWNED) at the same place inside another tenant's prefixes."""
    old, new = (OWNED[0], owned[0]) if prefix.family is Family.IPV4 else (OWNED[1], owned[1])
    return Prefix(prefix.family, prefix.network - old.network + new.network, prefix.length)


@functools.cache
def packets() -> SearchStrategy[Packet]:
    """A possible packet with fields near those of the pools: for single draws; prefer `corner_packets_of`."""

    def of(family: Family) -> SearchStrategy[Packet]:
        members = [prefix for prefix in FAR_POOL + OWN_POOL if prefix.family is family]
        address = st.sampled_from([value for prefix in members for value in (prefix.network, prefix.last)])
        port = st.sampled_from(sorted({end for ports in PORT_POOL for end in (ports.low, ports.high)}))
        byte = st.sampled_from((0, 3, 4, 8, 128, 255))
        return st.builds(
            Packet, st.just(family), address, address, st.sampled_from((TCP, UDP, ICMP, ICMPV6, SCTP, 47, 44)),
            port, port, byte, byte, st.sampled_from((0x00, 0x02, 0x10, 0x12, 0x04, 0x01)),
            st.sampled_from((0, 0, 1, 10, 40, 46, 63)), st.booleans(),
        )  # fmt: skip

    return st.one_of(of(Family.IPV4), of(Family.IPV6)).map(possible)


def corner_packets_of(acl: Acl, *more: Acl) -> tuple[Packet, ...]:
    """Every corner packet of one or more lists, overlaps between the lists included. Groups are each list's own."""
    found = dict.fromkeys(corner_packets(acl.rules, acl.groups))
    for other in more:
        found.update(dict.fromkeys(corner_packets(other.rules, other.groups)))
    return tuple(found)


def policy_corner_packets(policy: Policy) -> tuple[Packet, ...]:
    """Every corner packet of a policy's lists, aimed at its tenants' addresses."""
    return policy_packets(policy)


_TRANSPORT = operator.attrgetter(*(each.name for each in fields(Packet)[3:]))
"""What follows `family`, `source` and `destination`."""


def packet_kinds(*lists: Acl, prefixes_too: Iterable[Prefix] = ()) -> list[Packet]:
    """One packet of every kind that the rules of some lists (and the return-traffic rules) can tell apart.

    The fields of all rules cut each axis into ranges of values that every rule treats alike; one value of each range is
    combined with those of all other axes. `prefixes_too` cuts the addresses further. A few thousand for four rules:
    `assume` a bound on the length.
    """
    every_rule = [rule for acl in lists for rule in acl.rules]
    blocks = [prefix for acl in lists for group in acl.groups.values() for prefix in group.prefixes]
    sides = {"source": [*blocks, *prefixes_too], "destination": [*blocks, *prefixes_too]}
    for rule in every_rule:
        sides["source"] += rule.source.prefixes
        sides["destination"] += rule.destination.prefixes
    found = []
    for family in Family:
        sources, destinations = (_cuts(family, sides[side]) for side in ("source", "destination"))
        for transport, dscp in itertools.product(_transport_kinds(every_rule, family), _code_points(every_rule)):
            rest = _TRANSPORT(replace(transport, dscp=dscp))  # once for all ends: there are many
            found += [
                Packet(family, source, destination, *rest)
                for source, destination in itertools.product(sources, destinations)
            ]
    return found


def _cuts(family: Family, known: Iterable[Prefix]) -> list[int]:
    """The first address of each range that no prefix divides."""
    own = [prefix for prefix in known if prefix.family is family]
    starts = {0, *(prefix.network for prefix in own), *(prefix.last + 1 for prefix in own)}
    return sorted(start for start in starts if start < 1 << family.bits)


def _code_points(every_rule: Sequence[Rule]) -> list[int]:
    """One DSCP of each kind that rules tell apart."""
    sets = {rule.dscp for rule in every_rule if rule.dscp is not None}
    return list({tuple(members >> point & 1 for members in sets): point for point in reversed(range(64))}.values())


def _transport_kinds(every_rule: Sequence[Rule], family: Family) -> Iterator[Packet]:
    of_returns = {TCP, ICMP if family is Family.IPV4 else ICMPV6}
    named = sorted({*of_returns, 99, *(rule.protocol for rule in every_rule if rule.protocol is not None)})
    base = Packet(family, 0, 0, 0)
    if family is Family.IPV6:
        yield replace(base, protocol=44, later_fragment=True)
    for protocol in named:
        if family is Family.IPV4:
            yield replace(base, protocol=protocol, later_fragment=True)
        of_it = [rule for rule in every_rule if rule.protocol == protocol]
        if protocol in WITH_PORTS:
            yield from _port_kinds(of_it, replace(base, protocol=protocol))
        elif protocol == (ICMP if family is Family.IPV4 else ICMPV6):
            of_it += [rule for rule in PATH_MTU_RULES if rule.protocol == protocol]
            types = {77, *(rule.icmp_type for rule in of_it if rule.icmp_type is not None)}
            codes = {77, *(rule.icmp_code for rule in of_it if rule.icmp_code is not None)}
            for number, code in itertools.product(sorted(types), sorted(codes)):
                yield replace(base, protocol=protocol, icmp_type=number, icmp_code=code)
        elif (family, protocol) != (Family.IPV6, 44):
            yield replace(base, protocol=protocol)


def _port_kinds(of_it: Sequence[Rule], base: Packet) -> Iterator[Packet]:
    def starts(ranges: Iterable[PortRange]) -> list[int]:
        return sorted({0} | {edge for ports in ranges for edge in (ports.low, ports.high + 1) if edge <= 65535})

    sources = starts(ports for rule in of_it for ports in rule.source_ports)
    destinations = starts(ports for rule in of_it for ports in rule.destination_ports)
    matches = [match for rule in of_it for match in rule.flag_matches]
    flags = {0}
    if base.protocol == TCP:
        alike = {tuple(match.holds(byte) for match in (*matches, *ESTABLISHED)): byte for byte in range(256)}
        flags = set(alike.values())
    for source, destination, byte in itertools.product(sources, destinations, sorted(flags)):
        yield replace(base, source_port=source, destination_port=destination, tcp_flags=byte)

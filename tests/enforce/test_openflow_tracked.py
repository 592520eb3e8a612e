"""Connections on the fake switch and on a real one: the same traces go the same ways, and changes cut."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from enforce.real_switch import MOST_AT_ONCE, RealSwitch
from enforce.test_openflow_compiled import Twins, placed, sent_by
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import policies
from tracked_domain import conversation, denying, error_about, made_of, marked, trackable

from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.tracked import REFUSED, zone_of
from orchestrator.enforce.drivers.openflow.frames import EXTENSION_HEADERS, frame
from orchestrator.enforce.reading import are_counted
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.switch import prefix_tracking
from orchestrator.policy.addresses import Addresses, Family, Prefix, parse_address
from orchestrator.policy.connections import ends_of, opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Endpoint,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import IPV6_FRAGMENT, TCP, UDP
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program

pytestmark = pytest.mark.system

NOTHING = FlowTable.of(())
SYN, ACK = 0x02, 0x10


class Tracking:
    """Both switches with the program of a policy, which may change."""

    def __init__(self, switch: RealSwitch) -> None:
        self.twins, self._cache, self._generation = Twins(switch), CompileCache(), 0

    def load(self, policy: Policy) -> Program:
        self._generation += 1
        program = self._cache.compile_program(policy, domain="d", generation=self._generation)
        whole = Delta(b"", program.digest, program.generation, NOTHING, program.flows, program.ports)
        self.twins.apply(self._cache.change or whole)
        assert self.twins.hold(program)
        return program

    def forward(self, made: bytes, port: str) -> bool:
        """Whether a frame comes out: the same of both, or it fails."""
        ours, theirs = self.twins.fake.forward(made, port), self.twins.real.forward(made, port)
        assert sorted(ours) == sorted(theirs), (port, made.hex(), ours, theirs)
        return bool(ours)

    def compare_hits(self) -> None:
        """Hold the counters of both to be the same."""
        self.twins.real.settle()
        hits, real_hits = (driver.hits() for driver in self.twins.drivers)
        ours, theirs = (each.take(np.argsort(each.key)) for each in (hits, real_hits))
        for counted in ("key", "cookie", "packets", "bytes"):
            assert getattr(ours, counted).tolist() == getattr(theirs, counted).tolist(), counted

    def packets(self, cookie: int) -> list[int]:
        """How many packets each switch has counted for a cookie."""
        self.twins.real.settle()
        hits = [driver.hits() for driver in self.twins.drivers]
        return [int(each.packets[each.cookie == cookie].sum()) for each in hits]


@pytest.fixture
def tracking(real_switch: RealSwitch) -> Iterator[Tracking]:
    real_switch.reset()
    found = Tracking(real_switch)
    yield found
    found.twins.close()
    real_switch.reset()


def openings(policy: Policy, rng: random.Random, most: int) -> list[Packet]:
    packets = [replace(packet, tcp_flags=SYN if packet.protocol == TCP else 0) for packet in policy_packets(policy)]
    rng.shuffle(packets)
    return list({ends_of(each): each for each in packets if opening(each) and _is_sendable(each)}.values())[:most]


def _is_sendable(packet: Packet) -> bool:
    """Whether there is a frame of it. Open vSwitch knows no connection of protocol 0, and no rule may ask for that."""
    six = packet.family is Family.IPV6
    if packet.protocol == 0 or packet.source == packet.destination:
        return False
    return not six or packet.protocol not in (*EXTENSION_HEADERS, IPV6_FRAGMENT)


def _said(policy: Policy, rng: random.Random) -> Iterator[tuple[bytes, str]]:
    """Conversations that run side by side, with packets of chance between them."""
    talks = [list(conversation(first)) for first in openings(policy, rng, 12)]
    while any(talks):
        talk = rng.choice([each for each in talks if each])
        packet = talk.pop(0)
        port, mac = sent_by(policy, packet)
        yield _made(packet, None, mac), port
        if rng.random() < 0.3:
            if packet.protocol == TCP:
                odd = replace(packet, tcp_flags=rng.choice((SYN, SYN, 0x12, 0x14, 0x04, 0x01, 0)))
                yield _made(odd, None, mac), port
            error = error_about(packet, packet.destination)
            port, mac = sent_by(policy, error)
            yield made_of(error, packet, mac), port


def _made(packet: Packet, quoted: Packet | None, mac: int) -> bytes:
    """A frame; of TCP without data, for all segments have one sequence number."""
    if packet.protocol == TCP and quoted is None:
        return frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC)
    return made_of(packet, quoted, mac)


@given(policies(max_tenants=2, max_rules=5), st.integers(0, 1 << 30))
@settings(
    max_examples=10, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_both_switches_track_connections_alike(real_switch: RealSwitch, policy: Policy, seed: int) -> None:
    rng = random.Random(seed)
    real_switch.reset()
    tracking = Tracking(real_switch)
    try:
        tracked = trackable(placed(policy))
        mixed = marked(placed(policy), rng)
        explicit = replace(tracked, return_traffic=ReturnTraffic.EXPLICIT)
        for now in (tracked, denying(tracked), mixed, denying(mixed), tracked, explicit, mixed, tracked):
            tracking.load(now)
            for made, port in _said(tracked, rng):
                tracking.forward(made, port)
            tracking.compare_hits()
    finally:
        tracking.twins.close()
        real_switch.reset()


# ------------------------------------------------------------------------------------------------ a server, and clients


SERVER, FIRST_CLIENT = parse_address("10.1.0.1")[1], parse_address("198.18.0.0")[1]
TENANT = TenantId("t1")


def serving(*rules: Rule) -> Policy:
    """A tenant with one endpoint, whose egress list permits nothing."""
    numbers = {"all": 1, "no": 2, "some": 3}
    tenant = Tenant(TENANT, 1, (Prefix.parse("10.1.0.0/16"),), Acl(rules, egress_default=Action.DENY), numbers)
    endpoint = Endpoint("vm1", TENANT, "vm1", 0x020000000001, (Prefix.parse("10.1.0.1"),))
    return Policy((tenant,), return_traffic=ReturnTraffic.TRACKED, endpoints=(endpoint,))


ALL = Rule(RuleId("all"), Action.PERMIT)


def about(name: str, action: Action, clients: Sequence[int]) -> Rule:
    addresses = tuple(Prefix(Family.IPV4, FIRST_CLIENT + each, 32) for each in clients)
    return Rule(RuleId(name), action, Direction.INGRESS, source=Addresses(addresses))


def from_client(client: int, flags: int, protocol: int = TCP) -> tuple[bytes, str]:
    packet = Packet(Family.IPV4, FIRST_CLIENT + client, SERVER, protocol, 4000, 80, tcp_flags=flags)
    return frame(packet, src_mac=GATEWAY_MAC, dst_mac=GATEWAY_MAC), "wan0"


def to_client(client: int, flags: int, protocol: int = TCP) -> tuple[bytes, str]:
    packet = Packet(Family.IPV4, SERVER, FIRST_CLIENT + client, protocol, 80, 4000, tcp_flags=flags)
    return frame(packet, src_mac=0x020000000001, dst_mac=GATEWAY_MAC), "vm1"


def opens(tracking: Tracking, client: int) -> bool:
    return all(
        tracking.forward(*each)
        for each in (from_client(client, SYN), to_client(client, SYN | ACK), from_client(client, ACK))
    )


@pytest.mark.parametrize("many", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_change_cuts_the_connections_that_it_forbids_and_no_other(tracking: Tracking, many: int) -> None:
    """A random tenth is forbidden, another tenth permitted by another rule, which counts it from then on."""
    tracking.load(serving(ALL))
    assert all(opens(tracking, client) for client in range(many))
    chosen = random.Random(many).sample(range(many), many // 5)
    forbidden, moved = frozenset(chosen[: many // 10]), frozenset(chosen[many // 10 :])
    rule = 0xAC1 << 52 | 1 << 48
    tracking.load(
        serving(about("no", Action.DENY, sorted(forbidden)), about("some", Action.PERMIT, sorted(moved)), ALL)
    )
    before = tracking.packets(rule + 1)
    for client in range(many):
        passes = client not in forbidden
        assert tracking.forward(*to_client(client, ACK)) is passes
        assert tracking.forward(*from_client(client, ACK)) is passes
    assert tracking.packets(rule + 3) == [2 * len(moved)] * 2
    kept = many - len(forbidden) - len(moved)
    assert [now - then for now, then in zip(tracking.packets(rule + 1), before, strict=True)] == [2 * kept] * 2
    tracking.load(serving())
    assert not any(tracking.forward(*to_client(client, ACK)) for client in range(0, many, 7))


def pass_through(tracking: Tracking, frames: Mapping[int, tuple[bytes, str]]) -> set[int]:
    """Give the real switch a frame of each client, many at a time; return the clients whose frame came out."""
    found, clients = set(), list(frames)
    for start in range(0, len(clients), MOST_AT_ONCE):
        some: dict[str, list[bytes]] = {}
        for client in clients[start : start + MOST_AT_ONCE]:
            made, port = frames[client]
            some.setdefault(port, []).append(made)
        for _, out in tracking.twins.real.forward_many(some):
            ends = (int.from_bytes(out[at : at + 4], "big") for at in (26, 30))
            found |= {end - FIRST_CLIENT for end in ends if end != SERVER}
    return found


@pytest.mark.parametrize("many", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_of_thousands_of_connections_a_change_cuts_the_random_tenth_that_it_forbids(
    tracking: Tracking, many: int
) -> None:
    """On the real switch alone, whose cache holds them by then."""
    tracking.load(serving(ALL))
    everybody = range(many)
    for made in (partial(from_client, flags=SYN), partial(to_client, flags=SYN | ACK), partial(from_client, flags=ACK)):
        assert pass_through(tracking, {client: made(client) for client in everybody}) == set(everybody)
    forbidden = set(random.Random(1).sample(everybody, len(everybody) // 10))
    tracking.load(serving(about("no", Action.DENY, sorted(forbidden)), ALL))
    for answer in (partial(to_client, flags=ACK), partial(from_client, flags=ACK)):
        assert pass_through(tracking, {each: answer(each) for each in everybody}) == set(everybody) - forbidden


KNOWN = re.compile(r"^(\w+),orig=\(src=([\d.]+),dst=([\d.]+),sport=(\d+),dport=(\d+)\)", re.MULTILINE)
PARTS = {
    "a whole tuple": {
        "ct_nw_src": "198.18.0.7", "ct_nw_dst": "10.1.0.1", "ct_nw_proto": "6", "ct_tp_src": "4000", "ct_tp_dst": "80"
    },
    "an address and a protocol": {"ct_nw_src": "198.18.0.7", "ct_nw_proto": "6"},
    "an address": {"ct_nw_src": "198.18.0.7"},
    "a protocol": {"ct_nw_proto": "17"},
    "the server and a protocol": {"ct_nw_dst": "10.1.0.1", "ct_nw_proto": "6"},
}  # fmt: skip
"""What is flushed, in the daemon's words."""


@pytest.mark.parametrize("part", PARTS)
def test_the_daemon_flushes_the_connections_of_a_tuple_or_a_part_of_it(tracking: Tracking, part: str) -> None:
    """Nothing of ours asks for it: a change of rows cuts what it forbids, and a flush cuts what is permitted."""
    zone, everybody = zone_of(tracking.load(serving(ALL)).domain), range(300)
    for made in (partial(from_client, flags=SYN), partial(to_client, flags=SYN | ACK)):
        pass_through(tracking, {client: made(client) for client in everybody})
    pass_through(tracking, {client: from_client(client, 0, UDP) for client in everybody})
    real, words = tracking.twins.real, PARTS[part]
    before = known(real, zone)
    assert len(before) == 2 * len(everybody)
    real.control("dpctl/flush-conntrack", f"zone={zone}", ",".join(f"{name}={each}" for name, each in words.items()))
    assert before - known(real, zone) == {each for each in before if words.items() <= each}


def known(real: RealSwitch, zone: int) -> set[frozenset[tuple[str, str]]]:
    """The connections of a zone: each the fields of its first packet."""
    names = ("ct_nw_proto", "ct_nw_src", "ct_nw_dst", "ct_tp_src", "ct_tp_dst")
    numbers = {"tcp": str(TCP), "udp": str(UDP)}
    found = KNOWN.findall(real.control("dpctl/dump-conntrack", f"zone={zone}"))
    return {frozenset(zip(names, (numbers[protocol], *ends), strict=True)) for protocol, *ends in found}


def test_connections_of_strangers_share_cache_entries(tracking: Tracking) -> None:
    """With the prefixes tracked for which a host's switch is set up; else each stranger has entries of its own."""
    tracking.load(serving(about("no", Action.DENY, [1 << 17]), ALL))
    real, counts = tracking.twins.real, []
    for start, commands in ((0, ()), (40, prefix_tracking("br0", {}))):
        if commands:
            real.vsctl(*join_commands(commands))
        real.control("revalidator/purge")
        assert all(opens(tracking, client) for client in range(start, start + 40))
        counts.append(real.control("dpctl/dump-flows").count("ct_tuple4("))
    assert counts[0] >= 40 * 3
    assert counts[1] <= 6


@pytest.mark.parametrize("full", ["zone", "daemon"])
def test_where_there_is_no_room_a_connection_opens_in_no_direction_and_it_is_told(
    tracking: Tracking, full: str
) -> None:
    """Open vSwitch lets through what it could not remember; the program does not."""
    program = tracking.load(serving(ALL))
    real = tracking.twins.real
    if full == "zone":
        real.control("dpctl/ct-set-limits", f"zone={zone_of(program.domain)},limit=3")
    else:
        most = real.control("dpctl/ct-get-maxconns").strip()
        real.control("dpctl/ct-set-maxconns", "3")
    tracking.twins.fake.most_connections = 3
    try:
        assert [opens(tracking, client) for client in range(5)] == [True, True, True, False, False]
        assert [tracking.forward(*from_client(client, 0, UDP)) for client in range(5, 7)] == [False, False]
        assert [tracking.forward(*to_client(client, ACK)) for client in range(5)] == [True, True, True, False, False]
        assert [tracking.forward(*to_client(client, 0, UDP)) for client in range(5, 7)] == [False, False]
        assert tracking.packets(REFUSED) == [4, 4]
        hits = tracking.twins.drivers[1].hits()
        assert int(hits.packets[are_counted(hits.cookie) & (hits.cookie == REFUSED)].sum()) == 4
    finally:
        if full == "zone":
            real.control("dpctl/ct-del-limits", f"zone={zone_of(program.domain)}")
        else:
            real.control("dpctl/ct-set-maxconns", most)


def test_rules_about_a_source_and_a_port_meet_errors_of_that_source_about_its_connections(tracking: Tracking) -> None:
    """An error goes the way of its connection, and neither opens, continues nor answers it."""
    web = {"protocol": TCP, "destination_ports": (PortRange(80, 80),)}
    tracking.load(serving(ALL))
    assert all(opens(tracking, client) for client in range(2))
    tracking.compare_hits()
    tracking.load(serving(replace(about("no", Action.DENY, [0]), **web), ALL))
    assert [tracking.forward(*error_of(client)) for client in range(2)] == [False, True]
    tracking.compare_hits()
    tracking.load(serving(replace(about("some", Action.PERMIT, [0]), **web)))
    assert [tracking.forward(*error_of(client)) for client in range(2)] == [True, False]
    tracking.compare_hits()


def error_of(client: int) -> tuple[bytes, str]:
    """A client's error about what the server answered."""
    answer = Packet(Family.IPV4, SERVER, FIRST_CLIENT + client, TCP, 80, 4000, tcp_flags=ACK)
    return made_of(error_about(answer, FIRST_CLIENT + client), answer, GATEWAY_MAC), "wan0"


def test_a_switch_that_forgets_its_connections_cuts_them(tracking: Tracking) -> None:
    """As a restart does. What stateless rules permit in both directions goes on."""
    alone = [replace(ALL, stateless=True), replace(OUTWARD, stateless=True)]
    for rules in ([ALL], alone):
        tracking.load(serving(*rules))
        assert opens(tracking, 1)
        tracking.twins.real.control("dpctl/flush-conntrack")
        tracking.twins.fake.connections.clear()
        for each in (from_client(1, ACK), to_client(1, ACK)):
            assert tracking.forward(*each) is (rules is alone)
        assert opens(tracking, 1)


def test_protocol_0_is_decided_by_stateless_rules_alone(tracking: Tracking) -> None:
    """The real switch shows no first packet of it, so that rules which ask for its addresses do not meet it."""
    odd = frame(Packet(Family.IPV4, FIRST_CLIENT, SERVER, 0), src_mac=GATEWAY_MAC, dst_mac=GATEWAY_MAC), "wan0"
    tracking.load(serving(about("no", Action.DENY, [0]), ALL))
    assert not tracking.forward(*odd)
    tracking.load(serving(ALL))
    assert not tracking.forward(*odd)
    tracking.load(serving(replace(ALL, stateless=True)))
    assert tracking.forward(*odd)


def test_a_rule_that_is_stateless_for_a_while_cuts_what_it_let_in(tracking: Tracking) -> None:
    """Both ends are on this switch. What one did not know stays unknown to it; what both knew goes on."""
    client, server = (end_at(each) for each in ("10.2.0.1", "10.1.0.1"))

    def says(there: bool, flags: int, port: int) -> bool:
        (source, mac, vm), (target, *_) = (client, server) if there else (server, client)
        ports = (port, 80) if there else (80, port)
        packet = Packet(Family.IPV4, source, target, TCP, *ports, tcp_flags=flags)
        return tracking.forward(frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC), vm)

    def shakes(port: int) -> list[bool]:
        return [says(True, SYN, port), says(False, SYN | ACK, port), says(True, ACK, port)]

    def load(*rules: Rule) -> None:
        tracking.compare_hits()
        tracking.load(between(*rules))

    alone = [replace(ALL, stateless=True), replace(OUTWARD, stateless=True)]
    load(ALL, OUTWARD)
    assert shakes(1) == [True] * 3
    load(*alone)
    assert shakes(2) == [True] * 3
    assert says(True, ACK, 1)
    load(ALL, OUTWARD)
    assert [says(there, ACK, 1) for there in (True, False)] == [True, True]
    assert [says(there, ACK, 2) for there in (True, False)] == [False, False]
    load(*alone)
    assert [says(there, ACK, 2) for there in (True, False)] == [True, True]
    tracking.compare_hits()


OUTWARD = Rule(RuleId("some"), Action.PERMIT, Direction.EGRESS)


def end_at(address: str) -> tuple[int, int, str]:
    """An endpoint's address, MAC address and port."""
    number = 1 if address.startswith("10.1.") else 2
    return parse_address(address)[1], 0x020000000000 + number, f"vm{number}"


def between(*rules: Rule) -> Policy:
    """The server's tenant with these rules, and a client's of which everything is tracked and permitted."""
    server = serving(*rules)
    talks = Tenant(TenantId("t2"), 2, (Prefix.parse("10.2.0.0/16"),), Acl((OUTWARD,)), {"some": 11})
    client = Endpoint("vm2", TenantId("t2"), "vm2", 0x020000000002, (Prefix.parse("10.2.0.1"),))
    return replace(server, tenants=(*server.tenants, talks), endpoints=(*server.endpoints, client))

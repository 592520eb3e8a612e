"""Compiled programs on the fake switch and on a real one: held byte for byte, and every packet goes the same way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from enforce.real_switch import RealSwitch
from hypothesis import HealthCheck, Phase, given, settings
from strategies import policies

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.frames import (
    ARP,
    ARP_REQUEST,
    EXTENSION_HEADERS,
    IPV6,
    SOLICITATION,
    SOURCE_LINK_ADDRESS,
    arp,
    ethernet,
    frame,
    ipv6,
    link_address,
    neighbour,
    pseudo_v6,
    vlan,
)
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Endpoint, Packet, Policy
from orchestrator.policy.protocols import ICMPV6, IPV6_FRAGMENT
from orchestrator.program.delta import Delta, between, difference
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program

pytestmark = pytest.mark.system

PORTS = {"vm1": 1, "vm2": 2, "vm3": 3, "wan0": 4}
LOCAL = ("vm1", "vm2")
"""Interfaces of the first endpoints; later ones lie on another switch."""

NOTHING = FlowTable.of(())


class Twins:
    """A fake and a real switch, each with its driver."""

    def __init__(self, real: RealSwitch) -> None:
        self.real, self.fake = real, FakeSwitch(dict(PORTS))
        self._link = real.connect()
        self.drivers = [
            OpenFlowDriver(channel, uplink="wan0") for channel in (channel_to(self.fake), self._link.channel)
        ]
        for driver in self.drivers:
            driver.start(next(real.epochs))

    def apply(self, delta: Delta) -> None:
        for driver in self.drivers:
            driver.apply(delta, Stamp(delta.generation, delta.target))
        self.real.settle()

    def hold(self, program: Program) -> bool:
        """Whether both hold a program, stamp and all."""
        held = []
        for driver in self.drivers:
            observed = driver.observe()
            removed, added = difference(observed.flows, driver.resolve(program.flows, program.ports))
            held.append(
                not len(removed) and not len(added) and observed.stamp == Stamp(program.generation, program.digest)
            )
        return all(held)

    def close(self) -> None:
        self._link.close()


@pytest.fixture(scope="module")
def switch(real_switch: RealSwitch) -> Iterator[RealSwitch]:
    yield real_switch
    real_switch.reset()


def placed(policy: Policy) -> Policy:
    """The policy with its first endpoints on this switch's interfaces."""
    ports = (*LOCAL, *(f"far{index}" for index in range(10)))
    endpoints = zip(policy.endpoints, ports, strict=False)
    return replace(policy, endpoints=tuple(replace(endpoint, port=port) for endpoint, port in endpoints))


def sent_by(policy: Policy, packet: Packet) -> tuple[str, int]:
    """The port by which a packet comes in, and the MAC address it comes from."""
    for endpoint in policy.endpoints[: len(LOCAL)]:
        if any(prefix.family is packet.family and prefix.holds(packet.source) for prefix in endpoint.prefixes):
            return endpoint.port, endpoint.mac
    return "wan0", GATEWAY_MAC


def frames_of(policy: Policy, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Frames at the corners of a policy, some of them spoiled, and what endpoints ask their neighbours."""
    packets = [packet for packet in policy_packets(policy) if is_sendable(packet)]
    for packet in rng.sample(packets, min(len(packets), 150)):
        port, mac = sent_by(policy, packet)
        made = frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC, payload=b"payload")
        yield port, made
        if rng.random() < 0.2:
            yield rng.choice(tuple(PORTS)), made
            yield port, vlan(5, made)
            yield port, made[: rng.randrange(14, len(made))]
            at = rng.randrange(14, len(made))
            yield port, made[:at] + bytes((rng.randrange(256),)) + made[at + 1 :]
    for endpoint in policy.endpoints[: len(LOCAL)]:
        yield from questions(endpoint)


def questions(endpoint: Endpoint) -> Iterator[tuple[str, bytes]]:
    """ARP requests and neighbour solicitations, honest and not."""
    four = next(each.network for each in endpoint.prefixes if each.family is Family.IPV4)
    six = next(each.network for each in endpoint.prefixes if each.family is Family.IPV6)
    everybody = (1 << 48) - 1
    for address, asked, mac in tries(four, endpoint.mac):
        yield endpoint.port, ethernet(endpoint.mac, everybody, ARP, arp(ARP_REQUEST, mac, address, 0, asked))
    for address, asked, mac in (*tries(six, endpoint.mac), (0, six ^ 1, endpoint.mac)):
        option = link_address(SOURCE_LINK_ADDRESS, mac)
        question = neighbour(SOLICITATION, 0, asked, option, pseudo_v6(address, six ^ 1))
        yield endpoint.port, ethernet(endpoint.mac, everybody, IPV6, ipv6(address, six ^ 1, ICMPV6, question))
        yield "wan0", ethernet(GATEWAY_MAC, GATEWAY_MAC, IPV6, ipv6(address, six, IPV6_FRAGMENT, question))


def tries(own: int, mac: int) -> tuple[tuple[int, int, int], ...]:
    """(who asks, for whom, with which MAC): an honest question, one about oneself, and two lies."""
    return (own, own ^ 1, mac), (own, own, mac), (own ^ 2, own ^ 1, mac), (own, own ^ 1, mac ^ 1)


def is_sendable(packet: Packet) -> bool:
    """Whether there is a frame for it: what a policy calls a protocol may be an extension header of IPv6."""
    return packet.family is Family.IPV4 or packet.protocol not in EXTENSION_HEADERS or packet.later_fragment


@given(policies(max_tenants=3, max_rules=5), policies(max_tenants=3, max_rules=5))
@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_both_switches_do_the_same_with_compiled_programs(switch: RealSwitch, first: Policy, second: Policy) -> None:
    switch.reset()
    twins = Twins(switch)
    rng = random.Random(1)
    answers: list[str] = []
    try:
        before = compile_host(placed(first), domain="d", generation=1)
        after = compile_host(placed(second), domain="d", generation=2)
        twins.apply(Delta(b"", before.digest, 1, NOTHING, before.flows, before.ports))
        assert twins.hold(before)
        twins.apply(between(before, after))
        assert twins.hold(after)
        for port, sent in frames_of(placed(second), rng):
            ours, theirs = twins.fake.forward(sent, port), switch.forward(sent, port)
            assert sorted(ours) == sorted(theirs), (port, sent.hex())
            answers += [out for out, _ in ours if out == port]
        assert len(answers) >= 2 * min(len(second.endpoints), len(LOCAL)), "ARP and neighbours are answered"
        switch.settle()
        hits, real_hits = (driver.hits() for driver in twins.drivers)
        ours, theirs = (each.take(np.argsort(each.key)) for each in (hits, real_hits))
        for counted in ("key", "cookie", "packets", "bytes"):
            assert getattr(ours, counted).tolist() == getattr(theirs, counted).tolist()
    finally:
        twins.close()

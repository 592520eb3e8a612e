"""A lab whose hosts have kernels, switches and routed uplinks of their own."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator

import pytest
from patience import until
from system.leftovers import leftovers

from orchestrator.lab import namespaces, pop, specfile
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.migration import migrate
from orchestrator.lab.ovs import DATABASE, SWITCH
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.sockets import Conversation, converse
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Action, Packet, Policy, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

POP = specfile.parse(
    """
    routed: true
    clients: [{name: alice, addresses: [192.0.2.10, "2001:db8:ffff::10"]}]
    hosts: [{name: host1}, {name: host2}]
    tenants: [{id: shop, prefixes: [198.51.100.0/25, "2001:db8:100::/48"]}]
    endpoints:
      - {name: web1, tenant: shop, host: host1, addresses: [198.51.100.10, "2001:db8:100::10"]}
      - {name: db1, tenant: shop, host: host2, addresses: [198.51.100.20, "2001:db8:100::20"]}
    """
)
SHOP = TenantId("shop")
LIST = Acl(
    (
        Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),)),
        Rule(RuleId("dns"), Action.PERMIT, protocol=UDP, destination_ports=(PortRange(53, 53),)),
        Rule(RuleId("ping"), Action.PERMIT, protocol=ICMP),
        Rule(RuleId("ping6"), Action.PERMIT, protocol=ICMPV6),
    )
)
NODES = ("alice", "web1", "db1")


@pytest.fixture(scope="module")
def plane(layout: Layout) -> Iterator[ControlPlane]:
    with pop.temporary(layout, POP) as lab:
        made = ControlPlane(lab)
        made.start({SHOP: LIST})
        yield made
    assert leftovers(layout) == []


@pytest.fixture
def lab(plane: ControlPlane, layout: Layout) -> Lab:
    return pop.find(layout)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_of(POP, {SHOP: LIST})


def talks(port: int) -> list[Conversation]:
    """Everybody opens a connection to every endpoint, over both families."""
    pairs = [(one, other) for one, other in itertools.permutations(NODES, 2) if other != "alice"]
    return [Conversation(*pair, family, TCP, port) for pair in pairs for family in Family]


def all_answer(lab: Lab, port: int = 80) -> bool:
    return all(outcome.answered for outcome in converse(lab, talks(port)))


def test_what_the_list_permits_arrives_and_nothing_else(plane: ControlPlane, lab: Lab) -> None:
    until(lambda: all_answer(lab))
    assert not any(outcome.answered for outcome in converse(lab, talks(81), patience_s=0.5))
    pings = [
        Conversation(*pair, family, protocol)
        for family, protocol in ((Family.IPV4, ICMP), (Family.IPV6, ICMPV6))
        for pair in (("alice", "web1"), ("web1", "db1"))
    ]
    until(lambda: all(outcome.answered for outcome in converse(lab, pings)))


def test_a_volley_is_lossless_and_fares_as_the_policy_says(plane: ControlPlane, lab: Lab, policy: Policy) -> None:
    addresses = {node.name: node.addresses[0].network for node in lab.spec.nodes}
    shots = [
        (sender, Packet(Family.IPV4, addresses[sender], addresses[receiver], UDP, source, port))
        for source in range(1024, 1224)
        for sender, receiver in itertools.permutations(NODES, 2)
        for port in (53, 54)
    ]
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, *each) for each in shots])
    assert [one.nodes for one in landed] == [landing(lab.spec, policy, packet) for _, packet in shots]


def hops(lab: Lab, sender: str, target: str) -> list[str]:
    """Who says that a packet's time was over, hop by hop."""
    found = []
    for ttl in (1, 2):
        words = ("ip", "netns", "exec", lab.namespace(sender), "ping", "-n", "-c1", "-W5", "-t", str(ttl), target)
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        found += [line.split()[1] for line in said.splitlines() if line.startswith("From ")]
    return found


def test_the_host_and_the_router_are_hops(plane: ControlPlane, lab: Lab) -> None:
    until(lambda: hops(lab, "web1", "192.0.2.10") == ["100.127.77.6", "100.127.77.5"])
    until(lambda: hops(lab, "web1", "2001:db8:ffff::10") == ["fd77:1::2", "fd77:1::1"])


def test_an_endpoint_reaches_no_host(plane: ControlPlane, lab: Lab) -> None:
    own = ("100.127.77.6", "fd77:1::2", "100.127.77.10")
    until(lambda: all(pings(lab, "router", target) for target in own), what=lambda: "it is not that nobody answers")
    until(lambda: pings(lab, "host1", lab.controller_address[0]))
    for target in (*own, lab.controller_address[0]):
        assert not pings(lab, "web1", target), target


def pings(lab: Lab, sender: str, target: str) -> bool:
    words = ("ip", "netns", "exec", lab.namespace(sender), "ping", "-n", "-c1", "-W1", target)
    return not subprocess.run(words, capture_output=True, check=False).returncode


def routes(lab: Lab, host: str) -> str:
    words = ("ip", "-n", lab.namespace(host), "route", "show", "proto", "172")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_an_endpoint_that_moves_is_found_at_its_new_host(plane: ControlPlane, lab: Lab) -> None:
    migrate(lab, "web1", "host2")
    assert "198.51.100.10 " in routes(lab, "host2")
    assert "198.51.100.10 " not in routes(lab, "host1")
    until(lambda: all_answer(lab))
    migrate(lab, "web1", "host1")
    until(lambda: all_answer(lab))


@pytest.mark.parametrize(
    "name",
    [f"{SWITCH}-host1", f"{DATABASE}-host1", "uplink-host1", "bird-host1", "bird-router", SWITCH, DATABASE],
)
def test_what_is_killed_is_started_again(plane: ControlPlane, lab: Lab, name: str) -> None:
    lab.kill(name)
    assert name in plane.supervise()
    until(lambda: all_answer(lab))


def test_another_process_finds_daemons_and_runs_commands_on_hosts(plane: ControlPlane, lab: Lab) -> None:
    assert [daemon.vsctl("list-br").split() for daemon in lab.daemons] == [["edge"], ["host1"], ["host2"]]
    assert set(lab.ovs_of("host1").vsctl("list-ports", "host1").split()) == {"up0", "web1"}
    assert lab.namespace("router") in namespaces.with_prefix(lab.layout.prefix)

"""A firewall VNF in a whole lab: what clients and tenants send each other passes it, is decided and counted there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.enforce.drivers.filters.command import run
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.lab import pop, specfile
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane, agent_of
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Packet, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP

SHOP = TenantId("shop")
POP = specfile.parse(
    """
    hosts: [{name: host1}, {name: host2}]
    clients: [{name: outside, addresses: [192.0.2.1, "2001:db8:ffff::1"]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24, "2001:db8:100::/48"]}]
    endpoints:
      - {name: web, tenant: shop, host: host1, addresses: [198.51.100.10, "2001:db8:100::10"]}
      - {name: db, tenant: shop, host: host2, addresses: [198.51.100.20, "2001:db8:100::20"]}
    firewalls: [{name: fw1}]
    """
)
LIST = Acl(
    (
        Rule(
            RuleId("web"), Action.PERMIT, protocol=TCP, destination=Addresses((Prefix.parse("198.51.100.10/32"),)),
            destination_ports=(PortRange(80, 80),),
        ),
        Rule(RuleId("six"), Action.PERMIT, protocol=UDP, destination=Addresses((Prefix.parse("2001:db8:100::/48"),))),
        Rule(RuleId("own"), Action.PERMIT, source=Addresses((Prefix.parse("198.51.100.0/24"),))),
    )
)  # fmt: skip


def packet(source: str, destination: str, protocol: int, port: int) -> Packet:
    one, other = Prefix.parse(source), Prefix.parse(destination)
    return Packet(one.family, one.network, other.network, protocol, 40000, port)


TRIED = [
    ("outside", packet("192.0.2.1", "198.51.100.10", TCP, 80)),
    ("outside", packet("192.0.2.1", "198.51.100.10", TCP, 81)),
    ("outside", packet("192.0.2.1", "198.51.100.20", TCP, 80)),
    ("outside", packet("2001:db8:ffff::1", "2001:db8:100::20", UDP, 53)),
    ("outside", packet("2001:db8:ffff::1", "2001:db8:100::20", TCP, 53)),
    ("web", packet("198.51.100.10", "192.0.2.1", UDP, 53)),
    ("web", packet("198.51.100.10", "198.51.100.20", TCP, 5432)),
    ("db", packet("198.51.100.20", "198.51.100.10", UDP, 9)),
]


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Iterator[Lab]:
    with pop.temporary(layout, POP) as lab:
        ControlPlane(lab).start({SHOP: LIST})
        yield lab


def counted(lab: Lab) -> int:
    """What the firewall's counters have counted, all together."""
    driver = nftables_driver(lambda command, text: lab.inside("fw1", lambda: run(command, text)))
    return int(driver.hits().packets.sum())


def test_packets_fare_as_the_policy_says_and_the_firewall_counted_them(lab: Lab) -> None:
    policy = policy_of(POP, {SHOP: LIST})
    before = counted(lab)
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, sender, each) for sender, each in TRIED])
    assert [one.nodes for one in landed] == [landing(POP, policy, each) for _, each in TRIED]
    assert counted(lab) - before >= len(TRIED)


def test_a_firewall_that_denies_everything_stands_in_the_way_of_everything(lab: Lab) -> None:
    """Its agent is dead and its filter shut: the hosts would let these through."""
    lab.kill(agent_of(POP.firewalls[0]))
    shut = "table ip shut {\n chain c {\n  type filter hook forward priority -5; policy drop;\n }\n}\n"
    lab.inside("fw1", lambda: run(("nft", "-f", "-"), shut + shut.replace("ip shut", "ip6 shut")))
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, sender, each) for sender, each in TRIED])
    assert [one.nodes for one in landed] == [()] * len(TRIED)


def test_the_lab_starts_a_dead_agent_again(lab: Lab) -> None:
    plane = ControlPlane(lab)
    assert agent_of(POP.firewalls[0]) in plane.supervise()
    with plane.client() as client:
        plane.wait_enforced(client, client.put_acl(SHOP, Acl(LIST.rules[:2])).generation)

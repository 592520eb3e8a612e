"""A firewall VNF in a whole lab: what clients and tenants send each other passes it, is decided and counted there."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyroute2 import IPRoute

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.filters.command import run
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab import pop, specfile
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane, agent_of
from orchestrator.lab.spec import LEFT, RIGHT
from orchestrator.lab.wire import Shot, Wire, raw_socket, shot
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_mac
from orchestrator.policy.model import Acl, Action, Packet, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP

PATIENCE_S = 20.0
SHOP = TenantId("shop")
POP = specfile.parse(
    """
    routed: true
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


@contextlib.contextmanager
def outside_is_wired_to(lab: Lab, leg: int) -> Iterator[None]:
    """What the client sends goes into a leg of the firewall as it is: the edge, which knows better, does not look."""
    client, (port, _, mac) = POP.clients[0], POP.firewalls[0].ports[leg]
    matches = [f'priority=9000,in_port="{client.port}",{kind}' for kind in ("ip", "ipv6")]
    way = f'actions=set_field:{format_mac(mac)}->eth_dst,output:"{port}"'
    lab.ovs.ofctl("add-flows", "edge", "-", text="\n".join(f"{each},{way}" for each in matches))
    lab.ovs.forget()
    try:
        yield
    finally:
        for match in matches:
            lab.ovs.ofctl("del-flows", "edge", match, options=["--strict"])
        lab.ovs.forget()


def test_a_leg_bears_no_name_of_the_other_side(lab: Lab) -> None:
    """A client speaks in the name of an endpoint of another host, where no host can tell, and the rules permit it."""
    true = [packet("192.0.2.1", "198.51.100.10", TCP, 80), packet("2001:db8:ffff::1", "2001:db8:100::20", UDP, 53)]
    lies = [
        packet("198.51.100.20", "198.51.100.10", TCP, 80),
        packet("198.51.100.20", "198.51.100.10", UDP, 9),
        packet("2001:db8:100::10", "2001:db8:100::20", UDP, 53),
    ]
    shots = [shot(lab, "outside", each) for each in (*true, *lies)]
    with Wire(lab) as wire:
        with outside_is_wired_to(lab, 0):
            assert [one.nodes for one in wire.fire(shots)] == [("web",), ("db",), (), (), ()]
        with outside_is_wired_to(lab, 1):
            assert [one.nodes for one in wire.fire(shots)] == [(), (), ("web",), ("web",), ("db",)]


def test_the_machine_itself_is_not_reached_by_its_legs(lab: Lab) -> None:
    """In by a leg, to the address that the service and its operator use; by the management link the same arrives."""
    listening = lab.inside("fw1", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    address = lab.inside("fw1", management_address)
    with listening, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        listening.bind(("", 2222))
        listening.settimeout(PATIENCE_S)
        to = Prefix.parse(address).network
        for leg in (0, 1):
            stray = Packet(Family.IPV4, Prefix.parse("192.0.2.1").network, to, UDP, 40000, 2222)
            own = replace(stray, source=Prefix.parse("198.51.100.20").network)
            with outside_is_wired_to(lab, leg), Wire(lab) as wire:
                wire.fire([shot(lab, "outside", each) for each in (stray, own)])
        near.sendto(b"by the management link", (address, 2222))
        assert listening.recv(100) == b"by the management link"


def management_address() -> str:
    """The address of the link that is no leg. Called inside the firewall."""
    with IPRoute() as routes:
        legs = {routes.link_lookup(ifname=name)[0] for name in (LEFT, RIGHT, "lo")}
        found = [each for each in routes.get_addr(family=socket.AF_INET) if each["index"] not in legs]
    return str(found[0].get_attr("IFA_LOCAL"))


def test_what_comes_by_another_link_is_not_forwarded_to_a_leg(lab: Lab) -> None:
    """Somebody on the management network, in the name of an endpoint, where a route leads on."""
    address = lab.inside("fw1", management_address)
    route = ["ip", "route", "add", "198.51.100.10/32", "via", "169.254.1.1", "dev", RIGHT, "onlink"]
    lab.inside("fw1", lambda: run(route, ""))
    with lab.inside("web", raw_socket) as catcher, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as near:
        device, mac = link_towards(address)
        near.bind((device, 0))
        lie = packet("198.51.100.20", "198.51.100.10", UDP, 9)
        near.send(frames.frame(lie, src_mac=2, dst_mac=mac, payload=b"by the management link"))
        by_a_leg = Shot("outside", lambda _: frames.frame(lie, src_mac=2, dst_mac=GATEWAY_MAC, payload=b"by a leg"))
        with outside_is_wired_to(lab, 1), Wire(lab, ["outside"]) as wire:
            wire.fire([by_a_leg])
        seen = b""
        while b"by a leg" not in seen:
            assert select.select([catcher], [], [], PATIENCE_S)[0], "nothing came by the leg"
            seen += catcher.recv(2048)
    assert b"by the management link" not in seen


def link_towards(address: str) -> tuple[str, int]:
    """The interface on this side of the firewall's management link, and the MAC address at its other end."""
    with IPRoute() as routes:
        (route,) = routes.route("get", dst=address)
        index = route.get_attr("RTA_OIF")
        name = routes.get_links(index)[0].get_attr("IFLA_IFNAME")
        run(["ping", "-c1", "-W5", address], "")
        (near,) = (each for each in routes.get_neighbours(ifindex=index) if each.get_attr("NDA_DST") == address)
        return name, int(near.get_attr("NDA_LLADDR").replace(":", ""), 16)


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
        plane.wait_enforced(client, client.acls.put(SHOP, Acl(LIST.rules[:2])).generation)

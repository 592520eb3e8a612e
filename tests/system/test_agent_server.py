"""`aclflow agent --driver firewall-server`: a PoP's firewall server with the service beside it, and real packets."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from enforce.contract_filters import corner_packets
from pyroute2 import IPRoute
from system.test_agent import LESS, WHOLE, Vnf, eventually

from orchestrator.enforce.drivers.bpf.classifier import KernelClassifier
from orchestrator.enforce.drivers.nftables.pairs import HOSTS4, NAMES, PairTable
from orchestrator.enforce.drivers.nftables.served import TWICE
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, Router
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_mac
from orchestrator.policy.model import Acl, Action, Packet, Policy, Rule, RuleId, TenantId
from orchestrator.policy.prefilter import Fate, Misdirect, Share, verdict
from orchestrator.policy.protocols import UDP
from orchestrator.wire.firewalls import Plane

PAIR = Rule(
    RuleId("pair"), Action.PERMIT, source=Addresses((Prefix.parse("192.0.2.99/32"),)),
    destination=Addresses((Prefix.parse("198.51.100.78/32"),)),
)  # fmt: skip
PAIRED = Packet(Family.IPV4, Prefix.parse("192.0.2.99/32").network, Prefix.parse("198.51.100.78/32").network, UDP, 1, 2)
OWN_MAC, THEIR_MAC = 0x02AC1F041111, 0x02AC1F042222
MARKER = b"handed over by another server"
BOTH = Share(frozenset({TenantId("shop"), TenantId("bank")}), {}, Misdirect.DROP)


class ServerVnf(Vnf):
    """A router with a service and the agent of a firewall server."""

    def __init__(self, router: Router, directory: Path) -> None:
        super().__init__(router, directory, "firewall-server")
        self.plane = Plane.NFTABLES
        self.inside(_meeting)

    def onboard(self) -> str:
        """A domain with both tenants, a PoP and this server; a token to enrol with."""
        token = super().onboard()
        self.ask(lambda client: client.pops.add("p1", "pop1", ("outside",), misdirect="drop"))
        self.ask(lambda client: client.pops.add_server("p1", "fw1", "to-fw1", "0a:ac:1f:04:00:01"))
        return token

    def generation(self) -> int:
        return self.ask(lambda client: client.domains.read("pop1").generation)

    def wrong(self, policy: Policy, share: Share, packets: Sequence[Packet]) -> list[Packet]:
        """The packets that do not fare as the oracle of servers says."""
        came = self.router.fire(packets)
        return [
            packet
            for packet, through in zip(packets, came, strict=True)
            if through != (verdict(policy, share, packet).fate is Fate.PERMIT)
        ]


def _meeting() -> None:
    """An interface where servers would meet."""
    with IPRoute() as routes:
        peer = {"ifname": "rehome-end", "address": format_mac(THEIR_MAC)}
        routes.link("add", ifname="rehome", kind="veth", address=format_mac(OWN_MAC), peer=peer)
        for name in ("rehome", "rehome-end"):
            routes.link("set", index=routes.link_lookup(ifname=name)[0], state="up")


@pytest.fixture
def vnf(layout: Layout, tmp_path: Path) -> Iterator[ServerVnf]:
    with Router(layout.prefix) as router:
        made = ServerVnf(router, tmp_path)
        try:
            made.inside(made.service.start)
            yield made
        finally:
            made.close()


def test_the_life_of_a_firewall_server(vnf: ServerVnf) -> None:
    """Enrols, holds its share, gets and loses a pair, is killed, rebooted without the service, loses a tenant."""
    some = [*corner_packets(), PAIRED]
    packets = [packet for packet, came in zip(some, vnf.router.fire(some), strict=True) if came]
    token = vnf.onboard()
    vnf.reboot()
    vnf.start_agent(token)
    vnf.enforced(vnf.generation())
    assert vnf.wrong(WHOLE, BOTH, packets) == []

    shop = next(tenant for tenant in WHOLE.tenants if tenant.id == "shop")
    longer = Acl((PAIR, *shop.acl.rules))
    vnf.enforced(vnf.ask(lambda client: client.acls.put("shop", longer).generation))
    assert vnf.router.fire([PAIRED]) == [True]
    assert _pairs(vnf) == 1
    vnf.enforced(vnf.ask(lambda client: client.acls.put("shop", shop.acl).generation))
    assert vnf.router.fire([PAIRED]) == [False]
    assert _pairs(vnf) == 0

    vnf.end_agent(signal.SIGKILL)
    generation = vnf.ask(lambda client: vnf.put(client, LESS))
    assert vnf.wrong(WHOLE, BOTH, packets) == []
    vnf.start_agent()
    vnf.enforced(generation)
    assert vnf.wrong(LESS, BOTH, packets) == []

    vnf.service.kill()
    vnf.reboot()
    assert not any(vnf.router.fire(packets))
    vnf.start_agent()
    eventually(lambda: vnf.wrong(LESS, BOTH, packets) == [], vnf)
    vnf.inside(vnf.service.start)
    vnf.end_agent(signal.SIGKILL)  # the service has another port now
    vnf.start_agent()
    vnf.ask(lambda client: client.pops.add_server("p1", "fs2", "to-fs2", "0a:ac:1f:04:00:02"))
    vnf.ask(lambda client: client.pops.place_tenants("p1", {"bank": "fs2", "shop": "fw1"}))
    vnf.enforced(vnf.generation())
    only_shop = Share(frozenset({TenantId("shop")}), {TenantId("bank"): 2}, Misdirect.DROP)
    eventually(lambda: vnf.wrong(LESS, only_shop, packets) == [], vnf)

    vnf.ask(lambda client: client.pops.configure("p1", {"misdirect": "rehome"}))
    vnf.enforced(vnf.generation())
    eventually(lambda: _said_of_a_packet_that_came_back(vnf), vnf)


def _said_of_a_packet_that_came_back(vnf: ServerVnf) -> bool:
    """Have another server, which thinks that the bank is here, hand a packet over: it is dropped. Whether an event has
    said so."""
    theirs = Packet(
        Family.IPV4, Prefix.parse("192.0.2.7/32").network, Prefix.parse("203.0.113.9/32").network, UDP, 1, 2
    )

    def hand_over() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as end:
            end.bind(("rehome-end", 0))
            end.send(frames.frame(theirs, src_mac=THEIR_MAC, dst_mac=OWN_MAC, payload=MARKER))

    vnf.inside(hand_over)
    right = vnf.router.sockets[RIGHT]
    while select.select([right], [], [], 0.1)[0]:
        assert MARKER not in right.recv(2048)
    found = vnf.ask(lambda client: client.events.read(limit=1000).items)
    return any(each.kind == "firewall.trouble" and each.detail["trouble"] == TWICE for each in found)


def test_a_classifier_in_front_decides_as_the_tables_do(vnf: ServerVnf) -> None:
    """Its rows come with the program; what it decided it counted, and what it did not the tables decide."""
    some = [*corner_packets(), PAIRED]
    packets = [packet for packet, came in zip(some, vnf.router.fire(some), strict=True) if came]
    token = vnf.onboard()
    vnf.ask(lambda client: client.pops.configure("p1", {"classify": True}))
    vnf.start_agent(token, "--classifier", "--flow-cache")
    vnf.enforced(vnf.generation())
    kernel = KernelClassifier((LEFT, RIGHT))
    for policy in (WHOLE, LESS, WHOLE):
        vnf.enforced(vnf.ask(lambda client, policy=policy: vnf.put(client, policy)))
        before = vnf.inside(kernel.read_counters).packets.sum()
        for _ in range(2):  # by search, and by what is remembered of a flow
            assert vnf.wrong(policy, BOTH, packets) == []
        assert vnf.inside(kernel.read_counters).packets.sum() - before > len(packets)


def _pairs(vnf: ServerVnf) -> int:
    found = [vnf.inside(lambda name=name: PairTable(name).elements(HOSTS4, 100)) for name in NAMES]
    return sum(len(each) for each in found if each is not None)

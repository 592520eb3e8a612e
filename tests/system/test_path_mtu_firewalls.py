"""Messages about path MTU through firewall VNFs of each kind, with real packets: so many a second for each tenant.

Those that a kernel sends, for a link that takes smaller packets, come on a path of four namespaces:

    outside ── 1300 ── narrow ── vnf ── server, the shop's
"""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
from enforce.contract_filters import Bench, assert_holds, bring, policy, program
from patience import PATIENCE_S, until
from system.fabricworld import Listening, output
from system.queued import queue_bench
from system.test_filters_contract import RealBench

from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.machine import Batching, LinuxMachine, Lost, PacketQueue
from orchestrator.enforce.drivers.queue.tool import Led, QueueDriver, queue_driver
from orchestrator.errors import Refused
from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import Router
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, Packet, Policy, ReturnTraffic
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP
from orchestrator.wire.firewalls import Plane

Result = TypeVar("Result")

VARIANTS = {"nftables": None, "iptables-legacy": "legacy", "iptables-nft": "nft"}
RATE, FLOOD = 5, 1500
SHOP = {Family.IPV4: "198.51.100.10", Family.IPV6: "2001:db8:100::10"}
BANK = {Family.IPV4: "203.0.113.10", Family.IPV6: "2001:db8:200::10"}
OUTSIDE = {Family.IPV4: "192.0.2.9", Family.IPV6: "2001:db8:ffff:1::9"}
LONG, SMALL_MTU = bytes(400_000), "1300"
LINKS = (
    ("vnf", "right", "198.51.100.1/24", "2001:db8:100::1/64", "server", "198.51.100.10/24", "2001:db8:100::10/64"),
    ("vnf", "left", "10.9.0.2/24", "fd09::2/64", "narrow", "10.9.0.1/24", "fd09::1/64"),
    ("narrow", "left", "192.0.2.1/24", "2001:db8:ffff:1::1/64", "outside", "192.0.2.9/24", "2001:db8:ffff:1::9/64"),
)
"""A node, its interface and addresses; and the node at the other end, whose interface is `eth0`."""
GATEWAYS = {
    "server": ("198.51.100.1", "2001:db8:100::1"),
    "vnf": ("10.9.0.1", "fd09::1"),
    "narrow": ("10.9.0.2", "fd09::2"),
    "outside": ("192.0.2.1", "2001:db8:ffff:1::1"),
}
FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}


class Path:
    """The four namespaces, with a filter and its driver in one of them; used in a `with` statement."""

    def __init__(self, layout: Layout, kind: str) -> None:
        self._names = {node: layout.namespace(node) for node in GATEWAYS}
        self._kind = kind
        self._plane = {"nftables": Plane.NFTABLES, "queue": Plane.QUEUE}.get(kind, Plane.IPTABLES)

    def __enter__(self) -> Path:
        for node in self._names:
            namespaces.create(self._names[node])
            self.ip(node, "link", "set", "lo", "up")
        for node in ("vnf", "narrow"):
            self.inside(node, partial(namespaces.set_kernel, FORWARDING))
        for node, interface, four, six, other, its_four, its_six in LINKS:
            peer = ("peer", "name", "eth0", "netns", self._names[other])
            self.ip(node, "link", "add", interface, "type", "veth", *peer)
            for end, name, addresses in ((node, interface, (four, six)), (other, "eth0", (its_four, its_six))):
                self.ip(end, "link", "set", name, "up")
                for address in addresses:
                    self.ip(end, "address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        for node, gateways in GATEWAYS.items():
            for gateway in gateways:
                self.ip(node, *(["-6"] if ":" in gateway else []), "route", "add", "default", "via", gateway)
        self.ip("narrow", "link", "set", "left", "mtu", SMALL_MTU)
        self.driver = self._make_driver()
        return self

    def _make_driver(self) -> FilterDriver:
        if self._plane is Plane.QUEUE:
            return queue_driver(Setup(), Led(), "legacy", self)
        variant = VARIANTS[self._kind]
        return nftables_driver(self.run) if variant is None else iptables_driver(variant, self.run)

    def __exit__(self, *_: object) -> None:
        if isinstance(self.driver, QueueDriver):
            self.driver.stop()
        for name in self._names.values():
            namespaces.remove(name)

    def inside(self, node: str, call: Callable[[], Result]) -> Result:
        return namespaces.inside(self._names[node], call)

    def ip(self, node: str, *words: str) -> str:
        return output("ip", "-n", self._names[node], *words)

    def listen(self, port: int) -> Listening:
        """Have the server answer at a port."""
        return Listening(self._names["server"], (port,))

    def connect(self, target: str, port: int) -> socket.socket:
        """A connection from outside."""
        return self.inside("outside", partial(socket.create_connection, (target, port), PATIENCE_S))

    def retransmitted(self) -> int:
        """How many segments the server has sent again."""
        said = output("ip", "netns", "exec", self._names["server"], "nstat", "-asz", "TcpRetransSegs")
        return int(said.split()[-2])

    def enforce(self, wanted: Policy, generation: int) -> None:
        """Bring the filter to a policy, read back."""
        made = filter_program(wanted, [self._plane], domain="pop1", generation=generation)
        change = gap.correction(self.driver.observe(), made, self.driver.resolve)
        self.driver.apply(change, gap.stamp_of(made))
        held = self.driver.observe()
        assert gap.mismatch(held, self.driver.resolve(made.flows, ()), gap.stamp_of(made)) is None

    # as the drivers see the firewall's machine

    def run(self, command: Sequence[str], text: str) -> str:
        done = self.inside(
            "vnf", partial(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
        )
        if done.returncode:
            raise Refused(done.stderr)
        return str(done.stdout)

    def open(self, queue: int, batching: Batching) -> PacketQueue:
        return self.inside("vnf", partial(LinuxMachine().open, queue, batching))

    def lost(self) -> Mapping[int, Lost]:
        return self.inside("vnf", LinuxMachine().lost)


@pytest.fixture(params=[*VARIANTS, "queue"])
def path(request: pytest.FixtureRequest, layout: Layout) -> Iterator[Path]:
    with Path(layout, request.param) as made:
        yield made


@pytest.fixture(params=[*VARIANTS, "queue"])
def bench(request: pytest.FixtureRequest, layout: Layout) -> Iterator[Bench]:
    if request.param == "queue":
        with queue_bench(layout) as queued:
            yield queued
        return
    with Router(layout.prefix) as router:
        yield RealBench(router, VARIANTS[request.param])


def admitting(rate: int) -> Policy:
    shop, bank = policy(bank=()).tenants
    bank = replace(bank, prefixes=(*bank.prefixes, Prefix.parse("2001:db8:200::/48")))
    return replace(policy(), tenants=(shop, bank), return_traffic=ReturnTraffic.PATH_MTU, path_mtu_rate=rate)


def message(family: Family, target: str) -> Packet:
    protocol, kind, code = (ICMP, 3, 4) if family is Family.IPV4 else (ICMPV6, 2, 0)
    return Packet(family, _number(OUTSIDE[family]), _number(target), protocol, icmp_type=kind, icmp_code=code)


def _number(address: str) -> int:
    return Prefix.parse(address).network


@pytest.mark.parametrize("family", list(Family))
def test_a_flood_of_such_messages_is_bounded(bench: Bench, family: Family) -> None:
    wanted = program(bench, admitting(RATE))
    bring(bench, wanted)
    assert_holds(bench, wanted)
    ours, theirs = message(family, SHOP[family]), message(family, BANK[family])
    web = replace(ours, protocol=TCP, icmp_type=0, icmp_code=0, source_port=40_000, destination_port=80)
    until(lambda: bench.forward([ours]) == [True])
    began = time.monotonic()
    came = sum(bench.forward([ours] * FLOOD))
    seconds = time.monotonic() - began
    assert came <= RATE * (seconds + 2), f"{came} in {seconds:.1f} s"
    until(lambda: all(bench.forward([*[ours] * FLOOD, theirs, web])[-2:]), what=lambda: "a flood takes from others")
    until(lambda: bench.forward([ours]) == [True])


@pytest.mark.parametrize("family", list(Family))
def test_the_rate_is_the_domains(bench: Bench, family: Family) -> None:
    """The same flood, where the domain's rate has room for it."""
    bring(bench, program(bench, admitting(RATE)))
    wanted = program(bench, admitting(HIGHEST_PATH_MTU_RATE), 8)
    bring(bench, wanted)
    assert_holds(bench, wanted)
    began = time.monotonic()
    came = sum(bench.forward([message(family, SHOP[family])] * FLOOD))
    assert came > RATE * (time.monotonic() - began + 2)


@pytest.mark.parametrize("family", list(Family))
def test_a_download_over_a_smaller_link_stands_still_until_the_messages_pass(path: Path, family: Family) -> None:
    path.enforce(replace(admitting(RATE), return_traffic=ReturnTraffic.ESTABLISHED), 7)
    before = path.retransmitted()
    with path.listen(80) as listening, path.connect(SHOP[family], 80) as reader:
        sender, _ = listening.accept()
        with sender:
            sender.setblocking(False)
            left = sender.send(LONG)
            assert left > 20 * int(SMALL_MTU)
            until(lambda: path.retransmitted() >= before + 3)
            assert not select.select([reader], [], [], 0)[0], "no full segment arrives"
            path.enforce(admitting(RATE), 8)
            while left:
                came = len(reader.recv(1 << 16))
                assert came, "the connection was closed"
                left -= came

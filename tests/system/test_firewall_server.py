"""A firewall server with real packets: verdicts as its oracle's, pairs by single messages, misdirected packets.

left ── router ── right        the server, with the hosts on the right
           └───── rehome ══ second        where another server would be
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address

import pytest
from compiled_filter import carried
from enforce.contract_filters import BANK, DNS, SHOP, policy
from pyroute2 import IPRoute, netns

from orchestrator.compile.nftables.served import MISDIRECTED
from orchestrator.compile.servers.programs import Ask, Peer, ServerCompiler
from orchestrator.compile.servers.tenants import TenantCompiler
from orchestrator.enforce import gap
from orchestrator.enforce.changing import finish
from orchestrator.enforce.drivers.nftables import heldpairs, peers
from orchestrator.enforce.drivers.nftables.pairs import NAMES
from orchestrator.enforce.drivers.nftables.served import TWICE, ServedDriver, served_driver
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.errors import Missing, Refused
from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.router import ROUTER, Result, Router
from orchestrator.lab.wire import raw_socket
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_mac
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Action, Packet, Policy, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.prefilter import Fate, Misdirect, Share, verdict
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.delta import Delta, between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier

SECOND = "second"
MACS = {"rehome": 0x02AC1F000021, SECOND: 0x02AC1F000022}
NEXT = (ip_address("169.254.66.2"), ip_address("fd66::2"))
PEERS = (Peer(2, NEXT),)
SERVED, OTHER = TenantId("shop"), TenantId("bank")
PAIRS = (
    Rule(RuleId("pair"), Action.PERMIT, source=Addresses((Prefix.parse("192.0.2.7/32"),)),
         destination=Addresses((Prefix.parse("198.51.100.77/32"),))),
    Rule(RuleId("pair6"), Action.PERMIT, source=Addresses((Prefix.parse("2001:db8:ffff::7/128"),)),
         destination=Addresses((Prefix.parse("2001:db8:100::77/128"),))),
    Rule(RuleId("tcp"), Action.PERMIT, protocol=TCP, source=Addresses((Prefix.parse("192.0.2.8/32"),)),
         destination=Addresses((Prefix.parse("198.51.100.77/32"),)), destination_ports=(PortRange(5432, 5432),)),
    Rule(RuleId("udp6"), Action.PERMIT, protocol=UDP, source=Addresses((Prefix.parse("2001:db8:ffff::8/128"),)),
         destination=Addresses((Prefix.parse("2001:db8:100::77/128"),)), destination_ports=(PortRange(53, 53),)),
)  # fmt: skip


class Server:
    """A firewall server in a router, and what is at the other end of the interface where servers meet."""

    def __init__(self, router: Router, second: str) -> None:
        self.router = router
        self._second = second
        router.inside(ROUTER, self._link)
        self._socket = namespaces.inside(second, raw_socket)
        self.driver = served_driver()
        self._tenants = TenantCompiler()

    def close(self) -> None:
        self._socket.close()

    def inside(self, call: Callable[[], Result]) -> Result:
        return self.router.inside(ROUTER, call)

    def program(self, of: Policy, share: Share, generation: int) -> Program:
        return ServerCompiler("s1", self._tenants).program(of, Ask(share, PEERS), generation)[0]

    def bring(self, program: Program) -> None:
        """From whatever there is to a program, read back."""
        self.inside(partial(bring, self.driver, program))

    def send(self, packets: Sequence[Packet]) -> list[Fate]:
        """Each packet from the left; where it came out."""
        self._drain()
        right = self.router.fire(packets)
        sent_on = self._drain()
        found = []
        for packet, came in zip(packets, right, strict=True):
            rehomed = _addresses(packet) in sent_on
            assert not (came and rehomed)
            found.append(Fate.PERMIT if came else Fate.REHOME if rehomed else Fate.DROP)
        return found

    def arrive(self, packet: Packet) -> tuple[bool, bool]:
        """A packet from the second server: whether it came out on the right, and whether it came back."""
        marker = os.urandom(12)
        self._drain()
        self._socket.send(frames.frame(packet, src_mac=MACS[SECOND], dst_mac=MACS["rehome"], payload=marker))
        right = self.router.sockets["right"]
        came = any(marker in frame for frame in _received(right, 0.3))
        return came, any(marker in frame for frame in _received(self._socket, 0.1))

    def _drain(self) -> set[bytes]:
        """The address pairs of what was sent to the second server."""
        return {pair for frame in _received(self._socket, 0.1) if (pair := _pair_of(frame))}

    def _link(self) -> None:
        descriptor = netns.getnsfd(self._second)
        try:
            with IPRoute() as routes:
                peer = {"ifname": INTERFACE, "net_ns_fd": descriptor, "address": format_mac(MACS[SECOND])}
                routes.link("add", ifname="rehome", kind="veth", address=format_mac(MACS["rehome"]), peer=peer)
                routes.link("set", index=routes.link_lookup(ifname="rehome")[0], state="up")
            _know_the_second()
        finally:
            os.close(descriptor)
        namespaces.inside(self._second, _up)


def _know_the_second() -> None:
    with IPRoute() as routes:
        place = routes.link_lookup(ifname="rehome")[0]
        for address in NEXT:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            routes.neigh("replace", dst=str(address), lladdr=format_mac(MACS[SECOND]), ifindex=place,
                         state="permanent", family=family)  # fmt: skip


def _up() -> None:
    namespaces.set_kernel({"net/ipv6/conf/all/disable_ipv6": "1"})
    with IPRoute() as end:
        end.link("set", index=end.link_lookup(ifname=INTERFACE)[0], state="up")


def bring(driver: ServedDriver, program: Program) -> None:
    observed = driver.observe()
    driver.apply(gap.correction(observed, program, driver.resolve), gap.stamp_of(program))
    again = driver.observe()
    assert gap.mismatch(again, driver.resolve(program.flows, ()), gap.stamp_of(program)) is None


def _received(end: socket.socket, patience_s: float) -> Iterator[bytes]:
    while select.select([end], [], [], patience_s)[0]:
        yield end.recv(2048)


def _pair_of(frame: bytes) -> bytes:
    kind = struct.unpack_from("!H", frame, 12)[0]
    return frame[26:34] if kind == 0x0800 else frame[22:54] if kind == 0x86DD else b""


def _addresses(packet: Packet) -> bytes:
    octets = packet.family.bits // 8
    return packet.source.to_bytes(octets, "big") + packet.destination.to_bytes(octets, "big")


@pytest.fixture
def server(layout: Layout) -> Iterator[Server]:
    second = f"{layout.prefix}{SECOND}"
    namespaces.remove(second)
    with Router(layout.prefix) as router:
        namespaces.create(second)
        try:
            made = Server(router, second)
            yield made
            made.close()
        finally:
            namespaces.remove(second)


def served_policy(*more: Rule) -> Policy:
    """Shop with pairs and without, and bank, which another server has."""
    whole = policy((*PAIRS, *more, *SHOP), BANK, (DNS,))
    numbers = {rule.id: place for place, rule in enumerate((*PAIRS, *SHOP, *BANK, *more), 1)}
    return replace(whole, tenants=tuple(replace(tenant, rule_numbers=numbers) for tenant in whole.tenants))


def share(misdirect: Misdirect = Misdirect.REHOME) -> Share:
    return Share(frozenset({SERVED}), {OTHER: 2}, misdirect)


def routable(server: Server, of: Policy, most: int) -> list[Packet]:
    """Packets at the policy's corners that a router without a filter lets through."""
    every = [packet for packet in policy_packets(of) if carried(packet)]
    some = every[:: max(1, len(every) // most)]
    return [packet for packet, came in zip(some, server.router.fire(some), strict=True) if came]


@pytest.mark.parametrize("misdirect", Misdirect)
def test_every_verdict_is_the_oracles(server: Server, misdirect: Misdirect) -> None:
    of = served_policy()
    packets = routable(server, of, 400)
    server.bring(server.program(of, share(misdirect), 1))
    wanted = [verdict(of, share(misdirect), packet).fate for packet in packets]
    found = server.send(packets)
    assert [(packet, fate) for packet, fate in zip(packets, found, strict=True)] == list(
        zip(packets, wanted, strict=True)
    )
    kinds = {Fate.PERMIT, Fate.DROP} | ({Fate.REHOME} if misdirect is Misdirect.REHOME else set())
    assert set(wanted) == kinds


def test_what_comes_from_another_server_is_decided_or_dropped(server: Server) -> None:
    of = served_policy()
    server.bring(server.program(of, share(), 1))
    permitted = Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2)
    denied = replace(permitted, source=number_of("192.0.2.200"))
    elsewhere = replace(permitted, destination=number_of("203.0.113.9"))
    assert verdict(of, share(), elsewhere).fate is Fate.REHOME
    server.inside(server.driver.hits)
    assert server.driver.trouble() is None
    for packet, right in ((permitted, True), (denied, False), (elsewhere, False)):
        assert server.arrive(packet) == (right, False)
    server.inside(server.driver.hits)
    assert server.driver.trouble() == TWICE
    server.inside(server.driver.hits)
    assert server.driver.trouble() is None
    counted = server.router.run("nft", "list", "chain", "ip", NAMES_OF_TABLES[0], "whole")
    assert "counter packets 1 bytes" in next(line for line in counted.splitlines() if "misdirected-again" in line)


NAMES_OF_TABLES = ("aclflow", "aclflow2")


def test_a_pair_is_one_message_and_read_back_alone(server: Server) -> None:
    before, other = served_policy(), Rule(
        RuleId("one"), Action.PERMIT, source=Addresses((Prefix.parse("192.0.2.99/32"),)),
        destination=Addresses((Prefix.parse("198.51.100.78/32"),)),
    )  # fmt: skip
    packet = Packet(Family.IPV4, number_of("192.0.2.99"), number_of("198.51.100.78"), UDP, 1, 2)
    first, second = (server.program(of, share(), place) for place, of in enumerate((before, served_policy(other)), 1))
    server.bring(first)
    assert server.send([packet]) == [Fate.DROP]
    ran: list[Sequence[str]] = []
    commands = server.driver.commands.run
    server.driver.commands.run = lambda command, text: ran.append(command) or commands(command, text)  # type: ignore[func-returns-value]
    for here, there, fate in ((first, second, Fate.PERMIT), (second, first, Fate.DROP)):
        delta, stamp = between(here, there), gap.stamp_of(there)
        assert len(delta.added) + len(delta.removed) == 1
        changed = server.inside(lambda delta=delta, stamp=stamp: finish(server.driver.change(delta, stamp)))
        assert gap.changed_otherwise(changed, stamp) is None
        assert server.send([packet]) == [fate]
        assert ran == []
        observed = server.inside(server.driver.observe)
        assert gap.mismatch(observed, server.driver.resolve(there.flows, ()), stamp) is None
        ran.clear()


def test_foreign_changes_are_noticed_and_put_right(server: Server) -> None:
    of = served_policy()
    program = server.program(of, share(), 1)
    server.bring(program)
    wanted = server.driver.resolve(program.flows, ())
    element = "{ 192.0.2.7 . 198.51.100.77 }"
    changes = (
        f"delete element ip {NAMES[1]} hosts {element}",
        f"add element ip {NAMES[1]} hosts {{ 192.0.2.66 . 198.51.100.5 }}",
        f"flush chain ip {NAMES[1]} pairs",
        f"delete table ip6 {NAMES[1]}",
        f"flush chain ip {NAMES_OF_TABLES[0]} whole",
    )
    for change in changes:
        tables = server.router.run("nft", "list", "tables")
        name = next(name for name in NAMES if f"table ip {name}\n" in tables)
        plain = next(each for each in NAMES_OF_TABLES if f"table ip {each}\n" in tables)
        text = change.replace(NAMES[1], name).replace(f" {NAMES_OF_TABLES[0]} ", f" {plain} ")
        server.router.run("nft", "-f", "-", text=text + "\n")
        observed = server.inside(server.driver.observe)
        assert gap.mismatch(observed, wanted, gap.stamp_of(program)) is not None, change
        server.bring(program)
        assert server.send([Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2)]) == [
            Fate.PERMIT
        ]


@pytest.mark.parametrize("fault", ["down", "gone"])
def test_a_policy_does_not_wait_for_the_ways_to_other_servers(server: Server, fault: str) -> None:
    policies = served_policy(), policy(SHOP[:3], BANK, (DNS,))
    first, second = (server.program(each, share(), generation) for generation, each in enumerate(policies, 1))
    pair = Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2)
    elsewhere = replace(pair, destination=number_of("203.0.113.9"))
    server.bring(first)
    assert server.send([pair, elsewhere]) == [Fate.PERMIT, Fate.REHOME]
    server.router.run("ip", "link", *{"down": ("set", "rehome", "down"), "gone": ("del", "rehome")}[fault])
    for _ in range(2):
        with pytest.raises((Refused, Missing)):
            server.bring(second)
        assert server.router.fire([pair, elsewhere]) == [False, False]
    assert server.inside(server.driver.observe).stamp == gap.stamp_of(second)
    if fault == "down":
        server.router.run("ip", "link", "set", "rehome", "up")
        server.inside(_know_the_second)
        server.bring(second)
        assert server.send([pair, elsewhere]) == [Fate.DROP, Fate.REHOME]


@pytest.mark.parametrize("meddling", ["gateway", "table"])
def test_ways_that_somebody_leads_elsewhere_are_put_right(server: Server, meddling: str) -> None:
    program = server.program(served_policy(), share(), 1)
    elsewhere = Packet(Family.IPV4, number_of("192.0.2.7"), number_of("203.0.113.9"), UDP, 1, 2)
    server.bring(program)
    mark, table = f"{MISDIRECTED | 2:#x}", str(peers._TABLES + 2)
    if meddling == "gateway":
        server.router.run("ip", "route", "replace", "default", "dev", "rehome", "table", table)
    else:
        server.router.run("ip", "rule", "del", "pref", "1", "fwmark", mark, "table", table)
        server.router.run("ip", "rule", "add", "pref", "1", "fwmark", mark, "table", "main")
    observed = server.inside(server.driver.observe)
    assert gap.mismatch(observed, server.driver.resolve(program.flows, ()), gap.stamp_of(program)) is not None
    server.bring(program)
    assert server.send([elsewhere]) == [Fate.REHOME]
    assert server.router.run("ip", "rule").count(mark) == 1


def test_large_sets_are_remembered_and_made_anew_after_foreign_hands(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads them; so what somebody else put there is gone when all of it is made anew."""
    monkeypatch.setattr(heldpairs, "READABLE", 100)
    many = tuple(
        Rule(RuleId(f"many{number}"), Action.PERMIT, source=Addresses((Prefix(Family.IPV4, 0x0A000000 + number, 32),)),
             destination=Addresses((Prefix.parse("198.51.100.79/32"),)))
        for number in range(9_000)
    )  # fmt: skip
    program = server.program(served_policy(*many), share(), 1)
    server.bring(program)
    before = server.inside(server.driver.observe)
    assert gap.mismatch(before, server.driver.resolve(program.flows, ()), gap.stamp_of(program)) is None
    last = Packet(Family.IPV4, 0x0A000000 + 8_999, number_of("198.51.100.79"), UDP, 1, 2)
    foreign = replace(last, source=number_of("192.0.2.66"))
    assert server.send([last, foreign]) == [Fate.PERMIT, Fate.DROP]
    tables = server.router.run("nft", "list", "tables")
    name = next(name for name in NAMES if f"table ip {name}\n" in tables)
    element = "{ 192.0.2.66 . 198.51.100.79 }"
    server.router.run("nft", "-f", "-", text=f"add element ip {name} hosts {element}\n")
    assert server.send([foreign]) == [Fate.PERMIT]
    observed = server.inside(server.driver.observe)
    assert observed.stamp is None
    server.bring(program)
    assert server.send([last, foreign]) == [Fate.PERMIT, Fate.DROP]
    server.driver = served_driver()  # as after a restart: what is there is unknown to it
    assert server.inside(server.driver.observe).stamp is None
    server.bring(program)
    assert server.send([last, foreign]) == [Fate.PERMIT, Fate.DROP]


@pytest.mark.parametrize("step", ["filter", "pairs"])
def test_killed_in_the_middle_its_successor_goes_on(server: Server, step: str) -> None:
    """A pair goes and a rule comes; the first driver ends between the steps."""
    first = server.program(served_policy(), share(), 1)
    lists = policy(SHOP[:3], BANK, (DNS,))
    second = server.program(lists, share(), 2)
    server.bring(first)
    delta = between(first, second)

    def fails(*_: object) -> None:
        raise Refused("killed")

    if step == "filter":
        server.driver.filter.apply = fails  # type: ignore[method-assign]
    else:
        whole, calls = server.driver.pairs.change, [0]

        def change(*arguments: object) -> None:
            calls[0] += 1
            if calls[0] > 1:
                raise Refused("killed")
            whole(*arguments)  # type: ignore[arg-type]

        server.driver.pairs.change = change  # type: ignore[method-assign]
    with pytest.raises(Refused):
        server.inside(lambda: server.driver.apply(delta, gap.stamp_of(second)))
    pair = Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2)
    never = Packet(Family.IPV4, number_of("192.0.2.200"), number_of("198.51.100.77"), UDP, 1, 2)
    assert server.send([pair, never]) == [Fate.PERMIT, Fate.DROP]  # the old program permits it
    server.driver = served_driver()
    assert server.inside(server.driver.observe).stamp is None
    server.bring(second)
    assert server.send([pair, never]) == [Fate.DROP, Fate.DROP]


def test_a_bare_machine_is_closed_and_opened(server: Server) -> None:
    nothing = Program.of("s1", Tier.SERVER, 0, FlowTable.of(()), ())
    server.bring(server.program(served_policy(), share(), 1))
    observed = server.inside(server.driver.observe)
    stamp = gap.stamp_of(nothing)
    delta = Delta(b"", stamp.digest, 0, observed.flows, FlowTable.of(()), ())
    server.inside(lambda: server.driver.apply(delta, stamp))
    pair = Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2)
    assert server.send([pair]) == [Fate.DROP]


def number_of(address: str) -> int:
    return Prefix.parse(address).network

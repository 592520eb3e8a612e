"""Where several firewalls carry traffic together: generators, a spreading switch, capped firewalls, receivers.

    generators ── eth0 ══ sp-out ┐                  ┌ f0l ══ left ─ firewall ─ right ══ f0r
                                 │ spreading switch ├ f1l ══ ...
    receivers ─── eth0 ══ sp-in ─┘                  └ ...

The switch holds a program of our compiler, written and read back by our driver. Each firewall's links let no more than
its cap through (a token bucket), so that what is measured is how well traffic is spread, not two cores shared by all.

Its lists are the paper's worst case: only the last rule permits the generators' packets.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Self

from pyroute2 import IPRoute

from orchestrator.bench.benchlab import wait_connected
from orchestrator.bench.traffic.addresses import OWNED, SERVER, SERVER_ADDRESS, THROUGHPUT, Clients, alone
from orchestrator.bench.traffic.filters import Filter, text_of
from orchestrator.bench.traffic.iperf import received_frames
from orchestrator.bench.traffic.line import until_listening
from orchestrator.bench.traffic.rules import NO_RULES, Listed
from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_MAC
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.compile.spreadprogram import Member, Side, Spread, spread_program
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.app import SwitchObserver
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.errors import Drifted, Refused, Unreachable
from orchestrator.lab import namespaces, network, processes
from orchestrator.lab.forwarders import Forwarder
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.policy.addresses import Addresses, format_mac
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.program.program import Tier
from orchestrator.scaling.buckets import NOBODY, assign

GENERATORS, RECEIVERS, SWITCHES = "generators", "receivers", "switches"
STREAMS = 24
"""Flows of one generator, each from a port of its own: enough of them that shares of buckets are shares of traffic."""

_BRIDGE, _DATAPATH, _CONTROLLER = "spread", 0xAC1F00000300, "127.0.0.1"
_MACS = 0x0AAC1F060000
_WARM_S = 1.5
"""Generators do not begin at the same moment; what they do before and after is not looked at."""

_FEWEST = 20
"""A list has room for the rules of its traffic, which are not taken."""

PAPER_OCTETS = 1024
"""The paper's datagrams where it varies the rate."""
MEGABIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the suite.

    Numbers of rules, bytes of a datagram, rates offered to one VNF (Mb/s), numbers of VNFs, rounds, and seconds of each
    measurement. `cap` is what each of several VNFs may carry (Mb/s), `offered` the rates that they are offered.
    """

    rules: tuple[int, ...]
    lengths: tuple[int, ...]
    rates: tuple[int, ...]
    vnfs: tuple[int, ...]
    cap: int
    offered: tuple[int, ...]
    rounds: int
    seconds: int

    @property
    def lists(self) -> tuple[int, ...]:
        """Return the numbers of rules for nftables: aclflow's VNFs always hold a list."""
        return tuple(max(1, rules) for rules in self.rules)

    @classmethod
    def quick(cls) -> Self:
        return cls(
            rules=(0, 500, 2000), lengths=(64, 512, 1024), rates=(100, 300, 900), vnfs=(1, 2, 3, 5), cap=6,
            offered=(6, 30), rounds=3, seconds=2,
        )  # fmt: skip

    @classmethod
    def full(cls) -> Self:
        return cls(
            rules=(0, 250, 500, 1000, 2000), lengths=(64, 128, 256, 512, 1024, 1472), rates=(100, 300, 500, 700, 900),
            vnfs=(1, 2, 3, 5), cap=18, offered=(10, 30, 50, 70, 90), rounds=15, seconds=2,
        )  # fmt: skip


def worst_case(rules: int) -> Acl:
    """Make `rules` rules of which only the last permits the server; none: everything passes.

    Of twice as many, drawn from a fixed seed, those are taken that do not speak of the server.
    """
    if not rules:
        return NO_RULES
    drawn = (rule for rule in Listed(2 * rules + _FEWEST).acl().rules if not _is_of_server(rule))
    last = Rule(RuleId("last"), Action.PERMIT, destination=Addresses((SERVER,)))
    return Acl((*(rule for rule, _ in zip(drawn, range(rules - 1), strict=False)), last))


@cache
def filter_text(rules: int, kind: Filter = Filter.IPTABLES_LEGACY) -> str:
    """Return the list as a stateless filter's text.

    One line a rule as `iptables-restore` has it, look-ups for `nft`.
    """
    return text_of(kind, alone(worst_case(rules)))


def _is_of_server(rule: Rule) -> bool:
    return any(each.overlaps(SERVER) for each in rule.destination.prefixes)


@dataclass(slots=True)
class Firewalls:
    """Running firewalls with generators and receivers. Made by `run_firewalls`."""

    layout: Layout
    firewalls: Sequence[Forwarder]
    _device: Switch
    _generation: int = field(default=0)

    def spread(self, how_many: int) -> None:
        """Have so many firewalls carry everything. Raises Drifted where the switch holds something else."""
        self._generation += 1
        members = tuple(_make_member(number) for number in range(how_many))
        wanted = Spread(members, assign(NOBODY, {each.name: 1.0 for each in members}))
        program = spread_program(wanted, domain="bench", generation=self._generation)
        change = gap.correction(self._device.observe(), program, self._device.resolve)
        self._device.apply(change, gap.stamp_of(program))
        rows = self._device.resolve(program.flows, program.ports)
        wrong = gap.mismatch(self._device.observe(), rows, gap.stamp_of(program))
        if wrong is not None:
            raise Drifted(wrong.text)

    def load(self, rules: int, cap: int) -> None:
        """Give every firewall the worst-case list, and let it carry so many Mb/s at most."""
        for firewall in self.firewalls:
            firewall.run(f"{Filter.IPTABLES_LEGACY.value}-restore", text=filter_text(rules))
            firewall.cap(cap * MEGABIT)

    def measure_carried(self, generators: int, offered: int, seconds: int) -> float:
        """Mb/s of datagrams that reach the receivers while so many generators together offer `offered` Mb/s.

        Raises Unreachable if none does.
        """
        each = offered * MEGABIT // generators // STREAMS
        running = [self._start_generator(number, each, seconds) for number in range(generators)]
        try:
            time.sleep(_WARM_S)
            before, began = self._count_received(), time.monotonic()
            time.sleep(seconds)
            arrived, took = self._count_received() - before, time.monotonic() - began
        finally:
            told = [_read_complaint(process) for process in running]
        if not arrived:
            raise Unreachable(f"none of iperf3's datagrams reached the receivers: {'; '.join(told)[:400]}")
        return arrived * PAPER_OCTETS * 8 / took / MEGABIT

    def _start_generator(self, number: int, bits_per_s: int, seconds: int) -> subprocess.Popen[str]:
        command = [
            *("iperf3", "--client", SERVER_ADDRESS, "--port", str(THROUGHPUT + number)),
            *("--udp", "--length", str(PAPER_OCTETS), "--bitrate", str(bits_per_s), "--parallel", str(STREAMS)),
            *("--time", str(round(seconds + 2 * _WARM_S)), "--json"),
        ]
        start = partial(subprocess.Popen, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return namespaces.inside(self.layout.namespace(GENERATORS), start)

    def _count_received(self) -> int:
        text = namespaces.inside(
            self.layout.namespace(RECEIVERS), lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii")
        )
        return received_frames(text, INTERFACE)


def _read_complaint(process: subprocess.Popen[str]) -> str:
    """Return a generator's error output, if any, once it has ended."""
    try:
        text, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        return "iperf3 did not end"
    try:
        return str(json.loads(text).get("error", ""))
    except ValueError:
        return text.strip()[:200]


@contextmanager
def run_firewalls(layout: Layout, most: int) -> Iterator[Firewalls]:
    """Run `most` firewalls, with as many receivers. Raises Missing, Refused, Unreachable."""
    switches = layout.namespace(SWITCHES)
    with ExitStack() as stack:
        for name in (SWITCHES, GENERATORS, RECEIVERS):
            namespaces.create(layout.namespace(name))
            stack.callback(namespaces.remove, layout.namespace(name))
        for role, port, address in (
            (GENERATORS, OUTSIDE_PORT, Clients.ONE.address),
            (RECEIVERS, INSIDE_PORT, SERVER_ADDRESS),
        ):
            namespaces.inside(switches, partial(_join, layout.namespace(role), port))
            namespaces.inside(layout.namespace(role), partial(_end, address))
        firewalls = [_make_firewall(layout, number) for number in range(most)]
        for firewall in firewalls:
            stack.callback(firewall.remove)
            firewall.create(switches, str(OWNED))
        switch = stack.enter_context(_run_switch(layout, [port for each in firewalls for port in each.ports]))
        device = stack.enter_context(_driven(layout, switch))
        stack.enter_context(_listening(layout, most))
        yield Firewalls(layout, firewalls, device)


def _make_member(number: int) -> Member:
    """Make the spreading switch's account of a firewall."""
    (left, left_mac), (right, right_mac) = _name_sides(number)
    return Member(f"f{number}", number, Side(left, left_mac), Side(right, right_mac))


def _make_firewall(layout: Layout, number: int) -> Forwarder:
    return Forwarder(layout.namespace(f"f{number}"), *_name_sides(number))


def _name_sides(number: int) -> tuple[tuple[str, int], tuple[str, int]]:
    first = _MACS + 2 * number
    return (f"f{number}l", first), (f"f{number}r", first + 1)


def _join(namespace: str, port: str) -> None:
    """Link the switches' namespace to an end's, which answers as the gateway."""
    with IPRoute() as switches, network.descriptor(namespace) as inside:
        peer = {"ifname": INTERFACE, "net_ns_fd": inside, "address": format_mac(GATEWAY_MAC)}
        switches.link("add", ifname=port, kind="veth", peer=peer)
        switches.link("set", index=switches.link_lookup(ifname=port)[0], state="up")
    network.without_offloads(port)


def _end(address: str) -> None:
    """Configure an end. Called inside its namespace."""
    namespaces.set_kernel({f"net/ipv6/conf/{which}/disable_ipv6": "1" for which in ("all", "default")})
    network.without_offloads(INTERFACE)
    with IPRoute() as routes:
        index = routes.link_lookup(ifname=INTERFACE)[0]
        for each in (routes.link_lookup(ifname="lo")[0], index):
            routes.link("set", index=each, state="up")
        routes.addr("add", index=index, address=address, prefixlen=32)
        routes.neigh("add", dst=GATEWAY_IPV4, lladdr=format_mac(GATEWAY_MAC + 1), ifindex=index, state="permanent")
        routes.route("add", dst="0.0.0.0/0", gateway=GATEWAY_IPV4, oif=index, flags=["onlink"])


@contextmanager
def _run_switch(layout: Layout, ports: Sequence[str]) -> Iterator[OpenVSwitch]:
    folder, logs = layout.run_dir / "yard-ovs", layout.logs / "yard-ovs"
    logs.mkdir()
    switch = OpenVSwitch(folder, layout.namespace(SWITCHES), mark=layout.run_dir, logs=logs)
    switch.create()
    running = [switch.start_database()]
    try:
        running.append(switch.start_switch())
        processes.put_first(running[-1])
        switch.add_bridge(_BRIDGE, _DATAPATH)
        for port in (OUTSIDE_PORT, INSIDE_PORT, *ports):
            switch.vsctl("add-port", _BRIDGE, port)
        yield switch
    finally:
        processes.stop(running)


@contextmanager
def _driven(layout: Layout, switch: OpenVSwitch) -> Iterator[Switch]:
    """The switch, connected to us."""

    def make_launcher(observer: SwitchObserver) -> Launcher:
        inside = namespaces.inside(
            layout.namespace(SWITCHES), lambda: Launcher(Listen(_CONTROLLER, 0), observer, patience_s=30.0)
        )
        switch.vsctl("set-controller", _BRIDGE, f"tcp:{_CONTROLLER}:{inside.port}")
        return inside

    namespaces.inside(layout.namespace(SWITCHES), _set_loopback_up)
    with wait_connected(make_launcher, {_DATAPATH}) as channels:
        device = Switch(channels[_DATAPATH], uplink=INSIDE_PORT, tier=Tier.SPREAD)
        if not device.claim(1):
            raise Refused("the switch has another master")
        yield device


def _set_loopback_up() -> None:
    with IPRoute() as routes:
        routes.link("set", index=routes.link_lookup(ifname="lo")[0], state="up")


@contextmanager
def _listening(layout: Layout, how_many: int) -> Iterator[None]:
    """A receiver for each generator there may be."""
    running = [
        processes.spawn(
            f"iperf3-{number}",
            ["iperf3", "--server", "--port", str(THROUGHPUT + number)],
            mark=layout.run_dir,
            log=layout.logs / f"iperf3-{number}.log",
            namespace=layout.namespace(RECEIVERS),
        )
        for number in range(how_many)
    ]
    try:
        for number in range(how_many):
            namespaces.inside(layout.namespace(RECEIVERS), partial(until_listening, THROUGHPUT + number))
        yield
    finally:
        processes.stop(running)

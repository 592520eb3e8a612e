"""A machine with a spreading switch between a plain router and hosts: all packets meet the firewalls, none goes past.

    o (outside) ── r (router) ── s ─┬─ i1 ── a1      s: an Open vSwitch with sp-out and sp-in, `aclflow passage run`,
                                 ║  └─ i2 ── b1         and routes as a routing daemon would learn them from hosts
                              f1, f2

The firewalls forward as those do that Heat makes, by the same script. They refuse port 81.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from enforce.real_switch import SocketLink
from patience import until
from system.fabricworld import OUTSIDE, RANGES, World, address_of

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.compile.spreadprogram import Member, Side, Spread, spread_program
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.uplink.passage import TABLES
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import Process, stop
from orchestrator.policy.addresses import Family, format_mac, read_mac
from orchestrator.program.program import Tier
from orchestrator.scaling.buckets import NOBODY, assign

BRIDGE = "br-spread"
FIREWALLS = ("f1", "f2")
HOSTS = {"a1": ("i1", 2), "b1": ("i2", 3)}
_CONFIG = Path(__file__).parents[2] / "heat-templates" / "firewall-vnf.cloud-config"
_FILTER = """table inet filter {
    chain forward { type filter hook forward priority 0; policy accept; tcp dport 81 drop; counter; }
}"""


class PassageWorld(World):
    """All of it; used in a `with` statement. Needs root."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.names = ["o", "r", "s", *FIREWALLS, *HOSTS]
        self.passage: subprocess.Popen[bytes] | None = None
        self._switch: list[Process] = []
        self._generation = 0

    def build(self) -> None:
        self.make_nodes()
        self.link("r", "e1", "s", "eth0", "10.0.1", "fd00:1")
        for name, (interface, number) in HOSTS.items():
            self.link("s", interface, name, "eth0", f"10.0.{number}", f"fd00:{number}")
        self._route()
        self.ovs = OpenVSwitch(self.directory / "ovs", self.namespace("s"), mark=self.directory, logs=self.directory)
        self.ovs.create()
        for start in (self.ovs.start_database, self.ovs.start_switch):
            self._switch.insert(0, start())
        self.ovs.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure",
                       "protocols=OpenFlow15")  # fmt: skip
        self.ovs.vsctl("set-controller", BRIDGE, f"punix:{self.ovs.run_dir}/{BRIDGE}.controller")
        for port in (OUTSIDE_PORT, INSIDE_PORT):
            self.add_port(port)
        for name in FIREWALLS:
            self._add_firewall(name)

    def __exit__(self, *_: object) -> None:
        if self.passage is not None:
            self.stop_passage(signal.SIGKILL)
        stop(self._switch)
        super().__exit__()

    def _route(self) -> None:
        for family, way in ((Family.IPV4, "10.0.{}.{}"), (Family.IPV6, "fd00:{}::{}")):
            option, ranges = f"-{family.value}", RANGES[family is Family.IPV6]
            self.ip("r", option, "route", "add", ranges, "via", way.format(1, 2))
            self.ip("s", option, "route", "add", "default", "via", way.format(1, 1))
            for name, (_, number) in HOSTS.items():
                address = address_of(name, family)
                self.ip(name, option, "address", "add", address, "dev", "lo")
                self.ip(name, option, "route", "add", "default", "via", way.format(number, 1), "src", address)
                self.ip("s", option, "route", "add", address, "via", way.format(number, 2))

    def add_port(self, port: str) -> None:
        """Add an internal port of the switch that the kernel routes to."""
        self.ovs.vsctl("--may-exist", "add-port", BRIDGE, port, "--", "set", "interface", port, "type=internal",
                       f'mac="{format_mac(GATEWAY_MAC)}"')  # fmt: skip

    def _add_firewall(self, name: str) -> None:
        for side in ("left", "right"):
            port = f"{name}-{side}"
            self.ip("s", "link", "add", port, "type", "veth", "peer", "name", side, "netns", self.namespace(name))
            self.ip("s", "link", "set", port, "up")
            self.ip(name, "link", "set", side, "up")
            for place, interface in (("s", port), (name, side)):
                namespaces.inside(
                    self.namespace(place), lambda interface=interface: network.without_offloads(interface)
                )
            self.ovs.vsctl("add-port", BRIDGE, port)
        self.route_in(name)
        files = yaml.safe_load("write_files:\n" + _CONFIG.read_text(encoding="utf-8"))["write_files"]
        [script] = [each["content"] for each in files if each["path"].endswith("aclflow-sides")]
        self.run_in(name, "sh", "-c", script, "aclflow-sides", ",".join(RANGES))
        self.run_in(name, "nft", _FILTER)

    def passed(self, name: str) -> int:
        """How many packets a firewall has let through."""
        words = self.run_in(name, "nft", "list", "table", "inet", "filter").split()
        return int(words[words.index("packets") + 1])

    def spread(self, *names: str) -> None:
        """Spread over some firewalls, read back."""
        self._generation += 1
        members = tuple(
            Member(name, number, *(Side(f"{name}-{side}", self._mac_of(name, side)) for side in ("left", "right")))
            for number, name in enumerate(FIREWALLS, 5)
            if name in names
        )
        wanted = Spread(members, assign(NOBODY, {each.name: 1.0 for each in members}))
        program = spread_program(wanted, domain="pop1", generation=self._generation)
        link = SocketLink(self.ovs.run_dir / f"{BRIDGE}.controller")
        try:
            until(lambda: set(self.ovs.vsctl("list-ports", BRIDGE).split()) <= set(link.channel.ports))
            device = Switch(link.channel, uplink=INSIDE_PORT, tier=Tier.SPREAD)
            assert device.claim(self._generation)
            device.apply(gap.correction(device.observe(), program, device.resolve), gap.stamp_of(program))
            rows = device.resolve(program.flows, program.ports)
            wrong = gap.mismatch(device.observe(), rows, gap.stamp_of(program))
            assert wrong is None, wrong.text
        finally:
            link.close()

    def _mac_of(self, name: str, side: str) -> int:
        words = self.ip(name, "link", "show", side).split()
        return read_mac(words[words.index("link/ether") + 1])

    def pings_as(self, sender: str, source: str, target: str) -> bool:
        """Whether a node hears from an address when it asks by one of its own."""
        ping = ("ping", "-n", "-c", "3", "-i", "0.2", "-W", "1", "-I", source, target)
        inside = ("ip", "netns", "exec", self.namespace(sender))
        return not subprocess.run((*inside, *ping), capture_output=True, check=False).returncode

    def start_passage(self) -> None:
        """Start what leads packets into the switch; it has looked once when this returns."""
        log = (self.directory / "passage.log").open("wb")
        self.passage = subprocess.Popen([*self._command("run")], stdout=log, stderr=log)
        until(lambda: "passage." in self.log(), what=self.log)

    def stop_passage(self, number: int = signal.SIGTERM) -> None:
        """End it, in order or not."""
        assert self.passage is not None
        self.passage.send_signal(number)
        self.passage.wait(20)
        self.passage = None

    def command(self, verb: str) -> subprocess.CompletedProcess[str]:
        """Run another command about the passage."""
        return subprocess.run(self._command(verb), capture_output=True, text=True, check=False)

    def log(self) -> str:
        """What the process has said."""
        return (self.directory / "passage.log").read_text(encoding="utf-8")

    def _command(self, verb: str) -> list[str]:
        sides = ["--outside", "eth0", *(word for name, _ in HOSTS.values() for word in ("--inside", name))]
        ranges = [word for text in RANGES for word in ("--range", text)]
        inside = ["ip", "netns", "exec", self.namespace("s"), sys.executable, "-m", "orchestrator.cli"]
        return [*inside, "passage", verb, *([] if verb == "remove" else [*sides, *ranges])]


@pytest.fixture(scope="module")
def world(layout: Layout) -> Iterator[PassageWorld]:
    with PassageWorld(layout) as made:
        yield made


@pytest.fixture
def site(world: PassageWorld) -> PassageWorld:
    """Both firewalls carry packets."""
    world.spread(*FIREWALLS)
    if world.passage is None:
        world.start_passage()
    for sender, target in _pairs():
        until(lambda sender=sender, target=target: world.pings(sender, target), what=world.log)
    return world


def _pairs() -> Iterator[tuple[str, str]]:
    """Who speaks with whom: outside and hosts, and hosts among themselves."""
    for family in Family:
        a1, b1 = address_of("a1", family), address_of("b1", family)
        yield from (("o", a1), ("a1", OUTSIDE[family]), ("a1", b1), ("b1", a1))


def test_every_packet_meets_a_firewall_that_decides(site: PassageWorld) -> None:
    with site.listen("a1", 80, 81), site.listen("b1", 80, 81), site.listen("o", 80, 81):
        for sender, target in _pairs():
            before = sum(map(site.passed, FIREWALLS))
            until(lambda sender=sender, target=target: site.connects(sender, target, 80))
            assert sum(map(site.passed, FIREWALLS)) >= before + 4, (sender, target)
            assert not site.connects(sender, target, 81), (sender, target)


def test_without_a_firewall_nothing_goes_past(site: PassageWorld) -> None:
    site.spread()
    for sender, target in _pairs():
        assert not site.pings(sender, target), (sender, target)
    site.spread("f2")
    before = site.passed("f2"), site.passed("f1")
    for sender, target in _pairs():
        until(lambda sender=sender, target=target: site.pings(sender, target))
    assert site.passed("f2") > before[0]
    assert site.passed("f1") == before[1]


@pytest.mark.parametrize("port", [OUTSIDE_PORT, INSIDE_PORT])
def test_without_a_port_of_the_switch_nothing_goes_past(site: PassageWorld, port: str) -> None:
    site.ovs.vsctl("del-port", BRIDGE, port)
    until(lambda: f"there is no interface '{port}' here" in site.log())
    assert site.command("show").returncode == 1
    for sender, target in _pairs():
        among_hosts = {sender, *HOSTS} == {*HOSTS} and target not in OUTSIDE.values()
        assert site.pings(sender, target) is (among_hosts and port == OUTSIDE_PORT), (sender, target)
    for family in ("-4", "-6"):
        for table in TABLES:
            assert "unreachable" in site.ip("s", family, "route", "show", "table", str(table)), (
                "should the guard go, too"
            )
    site.add_port(port)
    site.spread(*FIREWALLS)
    for sender, target in _pairs():
        until(lambda sender=sender, target=target: site.pings(sender, target), what=site.log)


@pytest.mark.parametrize(
    "change",
    [
        ("-4", "rule", "delete", "iif", "eth0", "priority", "1720"),
        ("-6", "rule", "delete", "iif", "i1", "priority", "1720"),
        ("-4", "route", "flush", "table", "17201"),
        ("-6", "route", "flush", "table", "17202"),
        ("neighbour", "flush", "nud", "permanent", "dev", OUTSIDE_PORT),
        ("link", "set", INSIDE_PORT, "down"),
    ],
)
def test_what_somebody_changes_is_set_right(site: PassageWorld, change: tuple[str, ...]) -> None:
    site.ip("s", *change)
    for sender, target in _pairs():
        until(lambda sender=sender, target=target: site.pings(sender, target), what=site.log)
    assert site.command("show").returncode == 0


def test_nothing_goes_past_while_rules_are_gone(site: PassageWorld) -> None:
    """The guard permits four ways alone; the process that would put rules back is dead."""
    site.stop_passage(signal.SIGKILL)
    assert site.pings("o", address_of("a1", Family.IPV4)), "all of it stays"
    said = site.command("remove")
    assert said.returncode == 0, said.stderr
    assert site.command("show").returncode == 1
    for sender, target in _pairs():
        assert not site.pings(sender, target), (sender, target)
    site.start_passage()


def test_the_guard_comes_back(site: PassageWorld) -> None:
    site.run_in("s", "nft", "delete", "table", "inet", "aclflow_passage")
    until(lambda: "aclflow_passage" in site.run_in("s", "nft", "list", "tables"))


def test_endpoints_reach_no_address_of_the_machine(site: PassageWorld) -> None:
    for family, targets in ((Family.IPV4, ("10.0.1.2", "10.0.2.1")), (Family.IPV6, ("fd00:1::2", "fd00:2::1"))):
        for target in targets:
            assert not site.pings_as("a1", address_of("a1", family), target), target
    assert site.pings("a1", "10.0.2.1"), "its host does, which has an address of its own"


def test_nobody_outside_speaks_in_an_endpoints_name(site: PassageWorld) -> None:
    address = address_of("b1", Family.IPV4)
    site.ip("o", "address", "add", f"{address}/32", "dev", "lo")
    try:
        before = sum(map(site.passed, FIREWALLS))
        assert not site.pings_as("o", address, address_of("a1", Family.IPV4))
        assert sum(map(site.passed, FIREWALLS)) == before
    finally:
        site.ip("o", "address", "delete", f"{address}/32", "dev", "lo")

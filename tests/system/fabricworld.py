"""Two hosts with routed uplinks, a plain router between them and the outside, in namespaces.

    a1, a2 ── h1 ── 10.0.1/24, fd00:1::/64 ── r ── 10.0.9/24, fd00:9::/64 ── o (outside)
        b1 ── h2 ── 10.0.2/24, fd00:2::/64 ──┘
              h1 ── 192.168.77/24, fd77::/64 ── m (management)

Each host has an Open vSwitch of its own, made a host by `aclflow host configure`, and an `aclflow uplink run`.
Endpoints have 10.10.0.N and fd10::N. The router runs BIRD and knows nothing of aclflow; h1
runs BIRD and h2 FRR, each with the example that the project ships.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from enforce.real_switch import SocketLink
from patience import until

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.lab import namespaces, network
from orchestrator.lab.fabric import Leg, router_text
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import alive, stop
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_mac
from orchestrator.policy.model import Acl, Action, Endpoint, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP

BRIDGE = "br-aclflow"
HOSTS = {"h1": 1, "h2": 2}
ENDPOINTS = {"a1": ("h1", 11), "a2": ("h1", 12), "b1": ("h2", 21)}
OUTSIDE = {Family.IPV4: "10.0.9.2", Family.IPV6: "fd00:9::2"}
RANGES = ("10.10.0.0/16", "fd10::/64")
EXAMPLES = Path(__file__).parents[2] / "packaging/routing"
SHOP = TenantId("shop")


def address_of(name: str, family: Family) -> str:
    """An endpoint's address."""
    number = ENDPOINTS[name][1]
    return f"10.10.0.{number}" if family is Family.IPV4 else f"fd10::{number}"


def prefixes_of(*names: str) -> set[str]:
    """The prefixes of some endpoints, both families."""
    return {f"{address_of(name, Family.IPV4)}/32" for name in names} | {
        f"{address_of(name, Family.IPV6)}/128" for name in names
    }


def policy_with(*names: str, port: int = 80) -> Policy:
    """Everybody may ping all endpoints and reach a1 and b1 at one TCP port; nothing else comes in."""
    rules = [
        Rule(RuleId(f"ping{protocol}"), Action.PERMIT, protocol=protocol) for protocol in (ICMP, ICMPV6)
    ] + [
        Rule(
            RuleId(f"web-{name}"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(port, port),),
            destination=Addresses(tuple(Prefix.parse(text) for text in sorted(prefixes_of(name)))),
        )
        for name in ("a1", "b1")
    ]  # fmt: skip
    numbers = {rule.id: 100 + index for index, rule in enumerate(rules)}
    tenant = Tenant(SHOP, 1, tuple(map(Prefix.parse, RANGES)), Acl(tuple(rules)), numbers)
    endpoints = tuple(
        Endpoint(name, SHOP, f"v-{name}", mac_of(name), tuple(Prefix.parse(text) for text in sorted(prefixes_of(name))))
        for name in names
    )
    return Policy(tenants=(tenant,), endpoints=endpoints)


def mac_of(name: str) -> int:
    """An endpoint's MAC address."""
    return 0x020000000000 + ENDPOINTS[name][1]


class Host:
    """One compute host: its switch, and the processes that an operator runs on it."""

    uplink_port = "up0"
    leads = ("--fabric", "e1")
    ranges: Sequence[str] = RANGES

    def __init__(self, world: World, name: str) -> None:
        self.name, self.number = name, HOSTS[name]
        self.world = world
        self.namespace = world.namespace(name)
        self.directory = world.directory / name
        self.directory.mkdir()
        self.ovs = OpenVSwitch(self.directory / "ovs", self.namespace, mark=self.directory, logs=self.directory)
        self.ovs.create()
        self.database = self.ovs.start_database()
        self.switch = self.ovs.start_switch()
        self.uplink: subprocess.Popen[bytes] | None = None
        self.link: SocketLink | None = None
        self._epoch = 0

    def configure(self) -> None:
        """Make the switch a host's, and a unix socket by which the test is its controller."""
        self.command("host", "configure", "pop1", self.name, "--controller", "tcp:127.0.0.1:6653",
                     "--datapath", "netdev")  # fmt: skip
        self.ovs.vsctl("set-controller", BRIDGE, f"punix:{self.ovs.run_dir}/{BRIDGE}.controller")

    def command(self, *words: str) -> str:
        """Run `aclflow` on the host."""
        done = subprocess.run(self.aclflow(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def aclflow(self, *words: str) -> list[str]:
        """A command of `aclflow` as it is run on the host."""
        run_dir = () if words[-1] == "remove" else ("--run-dir", str(self.ovs.run_dir))
        return [
            "ip", "netns", "exec", self.namespace, sys.executable, "-m", "orchestrator.cli", *words, *run_dir,
        ]  # fmt: skip

    def start_uplink(self, *more: str, ranges: Sequence[str] = ()) -> None:
        """Start what keeps the routes; it has looked once when this returns."""
        declared = [word for text in ranges or self.ranges for word in ("--range", text)]
        log = (self.directory / "uplink.log").open("wb")
        self.uplink = subprocess.Popen(
            self.aclflow("uplink", "run", *self.leads, *declared, *more), stdout=log, stderr=log
        )
        until(lambda: "uplink." in self.log())

    def stop_uplink(self, number: int = signal.SIGTERM) -> None:
        """End what keeps the routes, in order or not."""
        assert self.uplink is not None
        self.uplink.send_signal(number)
        self.uplink.wait(20)
        self.uplink = None

    def enforce(self, policy: Policy, generation: int) -> None:
        """Bring the switch to a policy as the controller does, read back."""
        until(self._connected)
        assert self.link is not None
        program = compile_host(policy, domain="pop1", generation=generation)
        switch = Switch(self.link.channel, uplink=self.uplink_port)
        self._epoch += 1
        assert switch.claim(self._epoch)
        switch.apply(gap.correction(switch.observe(), program, switch.resolve), gap.stamp_of(program))
        wrong = gap.mismatch(
            switch.observe(), switch.resolve(program.flows, program.ports), gap.stamp_of(program)
        )  # fmt: skip
        assert wrong is None, wrong.text

    def _connected(self) -> bool:
        """Connect anew; whether the switch names all ports, which one that has just started does a moment later."""
        if self.link is not None:
            self.link.close()
            self.link = None
        with suppress(OSError):
            self.link = SocketLink(self.ovs.run_dir / f"{BRIDGE}.controller")
        return self.link is not None and self.list_ports() <= set(self.link.channel.ports)

    def list_ports(self) -> set[str]:
        """The ports that the switch must have."""
        return {"up0", "svc0", *(f"v-{name}" for name, (host, _) in ENDPOINTS.items() if host == self.name)}

    def restart_switch(self, *, number: int = signal.SIGKILL) -> None:
        """Kill the daemon and start it again."""
        self.kill_switch(number)
        self.switch = self.ovs.start_switch()

    def kill_switch(self, number: int = signal.SIGKILL) -> None:
        """Kill the daemon."""
        os.kill(self.switch.pid, number)
        until(lambda: not alive(self.switch))

    def routed(self) -> set[str]:
        """What the kernel routes to the port, as `ip` says it."""
        found = set()
        for family in ("-4", "-6"):
            lines = output("ip", "-n", self.namespace, family, "route", "show", "proto", "172").splitlines()
            for line in lines:
                text = line.split()[0]
                prefix = text if "/" in text else f"{text}/{32 if family == '-4' else 128}"
                found.add(prefix if " dev up0 " in f"{line} " else line)
        return found

    def log(self) -> str:
        """What the uplink's process has said."""
        return (self.directory / "uplink.log").read_text(encoding="utf-8")

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        if self.uplink is not None:
            self.stop_uplink(signal.SIGKILL)
        stop([self.switch, self.database])


class World:
    """All of it; used in a `with` statement. Needs root."""

    host_type: type[Host] = Host

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.directory = layout.run_dir
        self.names = [*HOSTS, *ENDPOINTS, "r", "o", "m"]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._folders: list[Path] = []
        self.hosts: dict[str, Host] = {}

    def namespace(self, name: str) -> str:
        return self._layout.namespace(name)

    def __enter__(self) -> World:
        self.directory.mkdir(parents=True)
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_nodes(self) -> None:
        """Make every node, and the router's link to the outside, which sends everything to it."""
        for name in self.names:
            namespaces.create(self.namespace(name))
            self.ip(name, "link", "set", "lo", "up")
        self.route_in("r")
        self.link("r", "e9", "o", "eth0", "10.0.9", "fd00:9")
        for way in (("-4", "10.0.9.1"), ("-6", "fd00:9::1")):
            self.ip("o", way[0], "route", "add", "default", "via", way[1])

    def build(self) -> None:
        self.make_nodes()
        for name in HOSTS:
            self.hosts[name] = self.host_type(self, name)
        for name, number in HOSTS.items():
            self.link("r", f"e{number}", name, "e1", f"10.0.{number}", f"fd00:{number}")
        self.link("m", "eth0", "h1", "mg", "192.168.77", "fd77")
        for way in (("-4", "192.168.77.2"), ("-6", "fd77::2")):
            self.ip("m", way[0], "route", "add", "default", "via", way[1])
        for host in self.hosts.values():
            host.configure()
        for name in ENDPOINTS:
            self.plug(name)
        legs = [
            Leg(name, 65000 + n, (f"10.0.{n}.1", f"fd00:{n}::1"), (f"10.0.{n}.2", f"fd00:{n}::2"))
            for name, n in HOSTS.items()
        ]
        self._start_bird("r", router_text("10.0.9.1", legs, map(Prefix.parse, RANGES)))
        example = (EXAMPLES / "bird.conf").read_text(encoding="utf-8")
        self._start_bird("h1", example.replace("log syslog all", "log stderr all"))
        self._start_frr("h2")

    def __exit__(self, *_: object) -> None:
        for process in self._daemons:
            process.kill()
            process.wait()
        for host in self.hosts.values():
            host.close()
        for name in self.names:
            namespaces.remove(self.namespace(name))
        for folder in (self.directory, *self._folders):
            shutil.rmtree(folder)

    def ip(self, name: str, *words: str) -> str:
        """Run `ip` inside a node."""
        return output("ip", "-n", self.namespace(name), *words)

    def run_in(self, name: str, *words: str) -> str:
        """Run a program inside a node."""
        return output("ip", "netns", "exec", self.namespace(name), *words)

    def _start_bird(self, name: str, text: str) -> None:
        path = self.directory / f"bird-{name}.conf"
        path.write_text(text, encoding="utf-8")
        output("bird", "-p", "-c", str(path))
        files = ("-s", str(self.directory / f"bird-{name}.ctl"), "-P", str(self.directory / f"bird-{name}.pid"))
        self._start(name, "bird", "-f", "-c", str(path), *files)

    def _start_frr(self, name: str) -> None:
        """Start zebra and bgpd as their own user, in a folder that this user can reach."""
        folder = Path(tempfile.mkdtemp())
        self._folders.append(folder)
        (folder / "zebra.conf").touch()
        shutil.copy(EXAMPLES / "frr.conf", folder / "bgpd.conf")
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "frr", "frr")
        zserv = folder / "zserv.api"
        for daemon in ("zebra", "bgpd"):
            files = ("-f", f"{folder}/{daemon}.conf", "-i", f"{folder}/{daemon}.pid", "--vty_socket", str(folder))
            self._start(name, f"/usr/lib/frr/{daemon}", "-z", str(zserv), *files)
            until(zserv.exists)

    def _start(self, name: str, *command: str) -> None:
        """Start a daemon inside a node."""
        log = (self.directory / f"{name}-daemon.log").open("ab")
        inside = ("ip", "netns", "exec", self.namespace(name))
        self._daemons.append(subprocess.Popen([*inside, *command], stdout=log, stderr=log))

    def announced(self) -> set[str]:
        """Which endpoints' addresses the router has heard of."""
        found = set()
        for family, length in (("-4", 32), ("-6", 128)):
            for line in self.ip("r", family, "route", "show", "proto", "bird").splitlines():
                text = line.split()[0]
                if text.startswith(("10.10.", "fd10:")):
                    found.add(text if "/" in text else f"{text}/{length}")
        return found

    def known_ways(self, prefix: str) -> int:
        """How many hosts the router has heard of for a prefix."""
        said = self.run_in("r", "birdc", "-s", str(self.directory / "bird-r.ctl"), "show", "route", "for", prefix)
        return said.count("via ")

    def chosen_way(self, prefix: str) -> str:
        """The router's interface towards the host that it chose for a prefix."""
        words = self.ip("r", "-6" if ":" in prefix else "-4", "route", "show", prefix, "proto", "bird").split()
        return words[words.index("dev") + 1] if "dev" in words else ""

    def plug_again(self, name: str, host: str) -> None:
        """Put a second port of an endpoint on another host's bridge, as a live migration does; nothing comes by it."""
        port, quiet = f"v-{name}", {"net/ipv6/conf/default/disable_ipv6": "1"}
        namespaces.inside(self.namespace(name), lambda: namespaces.set_kernel(quiet))
        peer = ("peer", "name", "eth1", "address", format_mac(mac_of(name)), "netns", self.namespace(name))
        self.ip(host, "link", "add", port, "type", "veth", *peer)
        self.ip(host, "link", "set", port, "up")
        self.ip(name, "link", "set", "eth1", "up")
        self.hosts[host].ovs.vsctl("add-port", BRIDGE, port)

    def unplug_again(self, name: str, host: str) -> None:
        """Take the second port away."""
        self.hosts[host].ovs.vsctl("del-port", BRIDGE, f"v-{name}")
        self.ip(host, "link", "delete", f"v-{name}")

    def speak(self, name: str) -> None:
        """Have an endpoint send one frame by its second port, as its hypervisor does when it begins to run."""
        with namespaces.inside(self.namespace(name), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw:
            raw.bind(("eth1", 0))
            raw.send(b"\xff" * 6 + mac_of(name).to_bytes(6, "big") + b"\x80\x35" + bytes(46))

    def pings(self, sender: str, target: str) -> bool:
        """Whether a node hears from an address."""
        command = [
            "ip",
            "netns",
            "exec",
            self.namespace(sender),
            "ping",
            "-n",
            "-c",
            "2",
            "-i",
            "0.2",
            "-W",
            "1",
            target,
        ]
        return (
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
        )

    def connects(self, sender: str, target: str, port: int, *, patience_s: float = 0.7) -> bool:
        """Whether a node can open a TCP connection to an address where somebody listens."""

        def opened() -> bool:
            try:
                socket.create_connection((target, port), patience_s).close()
            except OSError:
                return False
            return True

        return namespaces.inside(self.namespace(sender), opened)

    def listen(self, name: str, *ports: int) -> Listening:
        """Have a node answer connections on all its addresses."""
        return Listening(self.namespace(name), ports)

    def link(self, one: str, mine: str, other: str, theirs: str, four: str, six: str) -> None:
        self.ip(one, "link", "add", mine, "type", "veth", "peer", "name", theirs, "netns", self.namespace(other))
        for name, interface, number in ((one, mine, 1), (other, theirs, 2)):
            self.ip(name, "link", "set", interface, "up")
            self.ip(name, "address", "add", f"{four}.{number}/24", "dev", interface)
            self.ip(name, "-6", "address", "add", f"{six}::{number}/64", "dev", interface, "nodad")

    def route_in(self, name: str) -> None:
        settings = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
        namespaces.inside(self.namespace(name), lambda: namespaces.set_kernel(settings))

    def plug(self, name: str) -> None:
        """Put an endpoint's port on its host's bridge, as a cloud does."""
        host, port = self.hosts[ENDPOINTS[name][0]], f"v-{name}"
        peer = ("peer", "name", "eth0", "address", format_mac(mac_of(name)), "netns", self.namespace(name))
        self.ip(host.name, "link", "add", port, "type", "veth", *peer)
        self.ip(host.name, "link", "set", port, "up")
        namespaces.inside(host.namespace, lambda: network.without_offloads(port))
        namespaces.inside(self.namespace(name), lambda: network.without_offloads("eth0"))
        self.ip(name, "link", "set", "eth0", "up")
        for family, length in ((Family.IPV4, 32), (Family.IPV6, 128)):
            self.ip(name, "address", "add", f"{address_of(name, family)}/{length}", "dev", "eth0",
                    *(["nodad"] if length == 128 else []))  # fmt: skip
        self.ip(name, "route", "add", "default", "via", GATEWAY_IPV4, "dev", "eth0", "onlink")
        self.ip(name, "-6", "route", "add", "default", "via", GATEWAY_IPV6, "dev", "eth0")
        host.ovs.vsctl("add-port", BRIDGE, port)


class Listening:
    """TCP sockets that accept; used in a `with` statement."""

    def __init__(self, namespace: str, ports: Sequence[int]) -> None:
        self.namespace, self._ports = namespace, ports
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Listening:
        def opened() -> list[socket.socket]:
            return [socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
                    for port in self._ports]  # fmt: skip

        self._sockets = namespaces.inside(self.namespace, opened)
        return self

    def accept(self) -> tuple[socket.socket, object]:
        """The next connection at the first port."""
        return self._sockets[0].accept()

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()


def output(*command: str) -> str:
    """What a program printed; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout

"""The hosts of `fabricworld` with endpoints that know nothing when they come up, and hosts that serve them.

Endpoints are plugged as os-vif does: `tap` and eleven characters, `iface-id` and `attached-mac` in the switch. They
have a MAC address and a link, and real DHCP clients; a resolver with one name runs in the router.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from patience import until
from system.fabricworld import BRIDGE, ENDPOINTS, Host, World, mac_of, output

from orchestrator.lab import namespaces, network
from orchestrator.policy.addresses import Family, format_mac

T = TypeVar("T")

RESOLVER = {Family.IPV4: "169.254.169.253", Family.IPV6: "fd00:ac1f::53"}
NAME, NAMED = "www.example.test", "192.0.2.80"
UPSTREAM = "10.0.1.1"
_SCRIPT = """#!/bin/sh
# Called by dhclient and udhcpc alike: writes what was offered to a file, and takes it.
env > {folder}/env.new
mv {folder}/env.new {folder}/env
case "$reason$1" in
BOUND6*|RENEW6*) ip -6 address replace $new_ip6_address/128 dev eth0 nodad ;;
BOUND*|REBOOT*|RENEW*|bound*|renew*) ip address replace ${{new_ip_address:-$ip}}/${{new_subnet_mask:-$subnet}} dev eth0
    ip route replace default via ${{new_routers:-$router}} ;;
esac
exit 0
"""


class ServedWorld(World):
    """All of it; used in a `with` statement. Needs root."""

    def __init__(self, layout: object) -> None:
        super().__init__(layout)  # type: ignore[arg-type]
        self.services: dict[str, subprocess.Popen[bytes]] = {}

    def build(self) -> None:
        super().build()
        self._start("r", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-resolv",
                    f"--listen-address={UPSTREAM}", "--bind-interfaces", f"--address=/{NAME}/{NAMED}")  # fmt: skip

    def __exit__(self, *what: object) -> None:
        for name in list(self.services):
            self.stop_services(name, signal.SIGKILL)
        super().__exit__(*what)

    def plug(self, name: str) -> None:
        """Put a port on its host's bridge as os-vif does; its endpoint has a link and no address."""
        host, port = self.hosts[ENDPOINTS[name][0]], f"v-{name}"
        self.folder(name).mkdir()
        peer = ("peer", "name", "eth0", "address", format_mac(mac_of(name)), "netns", self.namespace(name))
        self.ip(host.name, "link", "add", port, "type", "veth", *peer)
        self.ip(host.name, "link", "set", port, "up")
        for namespace, interface in ((host.namespace, port), (self.namespace(name), "eth0")):
            namespaces.inside(namespace, lambda interface=interface: network.without_offloads(interface))
        self.ip(name, "link", "set", "eth0", "up")
        host.ovs.vsctl("add-port", BRIDGE, port, "--", "set", "interface", port, f"external_ids:iface-id={name}",
                       f'external_ids:attached-mac="{format_mac(mac_of(name))}"',
                       "external_ids:iface-status=active")  # fmt: skip

    def folder(self, name: str) -> Path:
        """Where an endpoint's clients keep their files."""
        return self.directory / f"endpoint-{name}"

    def start_services(self, host: Host) -> None:
        """Start what serves a host's endpoints; it is ready when this returns."""
        log = (self.directory / f"services-{host.name}.log").open("ab")
        command = ["ip", "netns", "exec", host.namespace, sys.executable, "-m", "orchestrator.cli", "host", "services",
                   "run", "--subnet", "10.10.0.0/24", "--dns", UPSTREAM, "--mtu", "1400", "--run-dir",
                   str(host.ovs.run_dir)]  # fmt: skip
        self.services[host.name] = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.dnsmasq(host), what=lambda: self.log(host))

    def stop_services(self, name: str, number: int = signal.SIGTERM) -> None:
        """End it, in order or not."""
        process = self.services.pop(name)
        process.send_signal(number)
        process.wait(20)

    def log(self, host: Host) -> str:
        """What the services of a host have said."""
        return (self.directory / f"services-{host.name}.log").read_text(encoding="utf-8")[-3000:]

    def dnsmasq(self, host: Host) -> list[int]:
        """The processes of a host that resolve names."""
        found = output("ip", "netns", "pids", host.namespace).split()
        return [int(each) for each in found if _name_of(int(each)) == "dnsmasq"]

    def inside(self, name: str, what: Callable[[], T]) -> T:
        """Call a function in an endpoint's network namespace."""
        return namespaces.inside(self.namespace(name), what)

    # ------------------------------------------------------------------------------------------------ clients

    def ask(self, name: str, client: str) -> dict[str, str] | None:
        """Ask for an address with a real client and take it; return what was offered, None without an answer."""
        folder = self.folder(name)
        script, offered = folder / "script", folder / "env"
        script.write_text(_SCRIPT.format(folder=folder), encoding="ascii")
        script.chmod(0o755)
        for each in (offered, folder / "leases"):
            each.unlink(missing_ok=True)
        (folder / "leases").touch()
        config = folder / "dhclient.conf"
        config.write_text("timeout 6;\nretry 2;\ninitial-interval 1;\nbackoff-cutoff 2;\nrequest subnet-mask, routers, "
                          "domain-name-servers, interface-mtu, dhcp6.name-servers;\n", encoding="ascii")  # fmt: skip
        isc = ("-1", "-cf", str(config), "-lf", str(folder / "leases"), "-pf", str(folder / "pid"), "-sf", str(script))
        words = {
            "dhclient": ("dhclient", "-4", *isc, "eth0"),
            "dhclient6": ("dhclient", "-6", *isc, "eth0"),
            "udhcpc": ("udhcpc", "-f", "-n", "-q", "-t", "4", "-T", "1", "-i", "eth0", "-s", str(script)),
        }[client]
        inside = ("ip", "netns", "exec", self.namespace(name))
        done = subprocess.run([*inside, *words], capture_output=True, timeout=90, check=False)
        pid = folder / "pid"
        if pid.exists():
            os.kill(int(pid.read_text(encoding="ascii")), signal.SIGKILL)
            pid.unlink()
        if done.returncode or not offered.exists():
            return None
        return dict(line.partition("=")[::2] for line in offered.read_text(encoding="utf-8").splitlines())

    def resolves(self, name: str, server: str, kind: int = socket.SOCK_DGRAM) -> bool:
        """Whether an endpoint gets an address for the one name that there is."""
        question = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0)
        question += b"".join(bytes([len(part)]) + part.encode() for part in NAME.split(".")) + struct.pack(
            "!BHH", 0, 1, 1
        )
        framed = question if kind == socket.SOCK_DGRAM else struct.pack("!H", len(question)) + question

        def asked() -> bool:
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            with socket.socket(family, kind) as port:
                port.settimeout(1.0)
                try:
                    port.connect((server, 53))
                    port.send(framed)
                    return socket.inet_aton(NAMED) in port.recv(2048)
                except OSError:
                    return False

        return self.inside(name, asked)

    def send_frames(self, name: str, frames: list[bytes]) -> None:
        """Send frames by an endpoint's interface as they are."""

        def sent() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as port:
                port.bind(("eth0", 0))
                for frame in frames:
                    try:
                        port.send(frame)
                    except OSError:  # ENOBUFS: the queue is full, which is what a flood is for
                        time.sleep(0.001)

        self.inside(name, sent)

    def capture(self, name: str) -> socket.socket:
        """A socket that hears every frame that comes to an endpoint from now on."""

        def opened() -> socket.socket:
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            port.bind(("eth0", 3))
            port.settimeout(0.5)
            return port

        return self.inside(name, opened)


def heard(port: socket.socket) -> list[bytes]:
    """The frames that came in since the last call, but for link-layer addresses that it asked for itself.

    Waits until half a second was quiet.
    """
    found = []
    while True:
        try:
            frame, (_, _, kind, *_) = port.recvfrom(4096)
        except TimeoutError:
            return found
        is_resolved = frame[12:14] == b"\x08\x06" or (frame[12:14] == b"\x86\xdd" and frame[54:55] == b"\x88")
        if kind != socket.PACKET_OUTGOING and not is_resolved:
            found.append(frame)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""

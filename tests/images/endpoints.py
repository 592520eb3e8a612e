"""Endpoints beside a switch that runs in a machine under QEMU: namespaces there, each behind a port of its bridge."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from ipaddress import IPv6Address

from images.guest import Guest

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Endpoint, TenantId

BRIDGE = "br-aclflow"
_LISTENS = """
import selectors, socket
ready = selectors.DefaultSelector()
for port in {ports}:
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        key.fileobj.accept()[0].close()
"""
_CONNECTS = """
import socket
try:
    socket.create_connection(({address!r}, {port}), timeout={patience_s}).close()
    print("there")
except OSError as error:
    print(error)
"""


@dataclass(frozen=True)
class Place:
    """One endpoint, with an address of each family; `number` is the last part of both."""

    name: str
    number: int

    @property
    def port(self) -> str:
        return f"{self.name}0"

    @property
    def addresses(self) -> tuple[str, str]:
        return f"192.0.2.{self.number}", str(IPv6Address(f"2001:db8::{self.number:x}"))

    def endpoint(self, tenant: str) -> Endpoint:
        prefixes = tuple(map(Prefix.parse, self.addresses))
        return Endpoint(self.name, TenantId(tenant), self.port, 0x020000000000 + self.number, prefixes)

    def plug_in(self, guest: Guest) -> None:
        """As a cloud does: an interface of the endpoint's, with a gateway that only its switch speaks for."""
        v4, v6 = self.addresses
        inside = f"ip -n {self.name}"
        script = f"""set -e
            ip netns add {self.name}
            ip link add {self.port} type veth peer name eth0 netns {self.name}
            {inside} link set eth0 address 02:00:00:00:00:{self.number:02x}
            ip netns exec {self.name} sysctl -qw net.ipv6.conf.eth0.accept_dad=0
            {inside} addr add {v4}/32 dev eth0
            {inside} addr add {v6}/128 dev eth0
            {inside} link set eth0 up
            ip link set {self.port} up
            {inside} route add default via 169.254.1.1 dev eth0 onlink
            {inside} -6 route add default via fe80::1 dev eth0
            ovs-vsctl --may-exist add-port {BRIDGE} {self.port}"""
        done = guest.ssh("sudo", "bash", "-c", shlex.quote(script))
        assert done.returncode == 0, done.stderr

    def listen(self, guest: Guest, *ports: int) -> None:
        command = ("sudo", "systemd-run", "--quiet", "--unit", f"listens-{self.name}", "ip", "netns", "exec", self.name)
        done = guest.ssh(*command, "python3", "-c", shlex.quote(_LISTENS.format(ports=ports)))
        assert done.returncode == 0, done.stderr

    def connect(self, guest: Guest, address: str, port: int, *, patience_s: float = 5.0) -> str:
        """`there`, or why not."""
        asked = _CONNECTS.format(address=address, port=port, patience_s=patience_s)
        done = guest.ssh("sudo", "ip", "netns", "exec", self.name, "python3", "-c", shlex.quote(asked))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def believed(self, guest: Guest) -> set[str]:
        """The MAC addresses of its neighbours, as its kernel knows them."""
        lines = guest.ssh("sudo", "ip", "-n", self.name, "neigh", "show").stdout.splitlines()
        return {words[words.index("lladdr") + 1] for words in map(str.split, lines) if "lladdr" in words}

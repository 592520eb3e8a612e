"""Two hosts on one network with their endpoints' addresses, whose router has no route to any of these.

    a1, a2 ── h1 ── e1 ┐
        b1 ── h2 ── e1 ┴ lan ── r ── 10.0.9/24, fd00:9::/64 ── o (outside)        10.10.0/24, fd10::/64
              h1 ── 192.168.77/24, fd77::/64 ── m (management)

As `fabricworld.py`, without a routing daemon anywhere: each host's kernel answers for its endpoints on the segment.
"""

from __future__ import annotations

import re
from pathlib import Path

from system.fabricworld import ENDPOINTS, HOSTS, Host, World, address_of

from orchestrator.policy.addresses import Family

ROOT = Path(__file__).parents[2]
RANGES = ("10.10.0.0/25", "fd10::/120")
ROUTER = {Family.IPV4: "10.10.0.254", Family.IPV6: "fd10::1:254"}
HOST_ADDRESSES = {
    "h1": {Family.IPV4: "10.10.0.201", Family.IPV6: "fd10::1:201"},
    "h2": {Family.IPV4: "10.10.0.202", Family.IPV6: "fd10::1:202"},
}


class SegmentHost(Host):
    """A compute host on the segment."""

    leads = ("--segment", "e1")
    ranges = RANGES

    def aclflow(self, *words: str) -> list[str]:
        """With the rights that the unit leaves its process, and no others."""
        command = super().aclflow(*words)
        if words[:2] != ("uplink", "run"):
            return command
        unit = (ROOT / "packaging/systemd/aclflow-uplink.service").read_text(encoding="utf-8")
        (said,) = re.findall("CapabilityBoundingSet=(.*)", unit)
        rights = ",".join(["-all", *(f"+{each.removeprefix('CAP_').lower()}" for each in said.split())])
        return [*command[:4], "setpriv", "--bounding-set", rights, *command[4:]]

    def answered(self) -> set[str]:
        """The addresses that the kernel answers for on the segment, as `ip` says it."""
        lines = self.world.ip(self.name, "neigh", "show", "proxy").splitlines()
        lines += self.world.ip(self.name, "-6", "neigh", "show", "proxy").splitlines()
        found = re.findall(r"^(\S+) dev e1 .*proto 172", "\n".join(lines), re.MULTILINE)
        return {f"{address}/{128 if ':' in address else 32}" for address in found}

    @property
    def mac(self) -> str:
        """The MAC address that it has on the segment."""
        return self.world.ip(self.name, "-o", "link", "show", "e1").partition("link/ether ")[2].split()[0]


class SegmentWorld(World):
    """All of it; used in a `with` statement. Needs root."""

    host_type = SegmentHost

    def build(self) -> None:
        self.make_nodes()
        self.ip("r", "link", "add", "lan", "type", "bridge")
        self.ip("r", "link", "set", "lan", "up")
        self._give("r", "lan", ROUTER)
        for name in HOSTS:
            self.hosts[name] = self.host_type(self, name)
            self.join(name)
        self.link("m", "eth0", "h1", "mg", "192.168.77", "fd77")
        for way in (("-4", "192.168.77.2"), ("-6", "fd77::2")):
            self.ip("m", way[0], "route", "add", "default", "via", way[1])
        for host in self.hosts.values():
            host.configure()
        for name in ENDPOINTS:
            self.plug(name)

    def join(self, name: str) -> None:
        """Put a host on the segment, with a default route by its router."""
        self.ip("r", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "e1", "netns", self.namespace(name))
        self.ip("r", "link", "set", f"to-{name}", "master", "lan", "up")
        self.ip(name, "link", "set", "e1", "up")
        self._give(name, "e1", HOST_ADDRESSES[name])
        self.ip(name, "route", "add", "default", "via", ROUTER[Family.IPV4])
        self.ip(name, "-6", "route", "add", "default", "via", ROUTER[Family.IPV6])

    def leave(self, name: str) -> None:
        """Take a host's interface on the segment away."""
        self.ip("r", "link", "del", f"to-{name}")

    def known_mac(self, name: str, family: Family) -> str:
        """The MAC address that the router takes for an endpoint's; empty while it knows none."""
        words = self.ip("r", "neigh", "show", address_of(name, family), "dev", "lan").split()
        return words[words.index("lladdr") + 1] if "lladdr" in words else ""

    def forget_neighbours(self) -> None:
        """Have the router ask anew."""
        self.ip("r", "neigh", "flush", "dev", "lan")
        self.ip("r", "-6", "neigh", "flush", "dev", "lan")

    def _give(self, name: str, interface: str, addresses: dict[Family, str]) -> None:
        self.ip(name, "address", "add", f"{addresses[Family.IPV4]}/24", "dev", interface)
        self.ip(name, "-6", "address", "add", f"{addresses[Family.IPV6]}/64", "dev", interface, "nodad")

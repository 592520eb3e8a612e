"""The namespaces of a point of presence, their links, and what arrives in the WAN.

                                     ┌ uplink ═══════════════════════════ edge ┐
    outside ── eth0 ══ out ─ [edge] ─┤ s1 ══ service ─ [server1] ─ inside ══ in1 ├─ wan
       │                             └ s2 ══ service ─ [server2] ─ inside ══ in2 ┤   every tenant's
       │                                  rehome ══ r1, r2 on a bridge in edge   │   addresses
       └ back ══════════════════════════════════════════════════════════ back ──┘

Servers' kernels route what their filter lets pass. Answers go from the WAN straight back, in IPv4 only: of IPv6 it is
counted what arrives. Segments are not joined or split by any interface, and neighbours are fixed, except where servers
meet. No interface says anything by itself: a server has IPv6 addresses on `rehome` alone.

`Wan` counts packets and bytes at the WAN's end: those of attacks and of permitted traffic, by port.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.ifinfmsg import IFF_MULTICAST, IFF_UP

from orchestrator.bench.pop.world import ATTACKED_PORT, IPV4, PERMITTED_PORT
from orchestrator.compile.edgeprogram import Way
from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6
from orchestrator.errors import Missing, Refused
from orchestrator.lab import namespaces, processes
from orchestrator.lab.bridges import rehome_addresses
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import INTERFACE, descriptor, without_offloads
from orchestrator.lab.processes import Process
from orchestrator.policy.addresses import Prefix, format_mac

Result = TypeVar("Result")

OUTSIDE, EDGE, WAN = "outside", "edge", "wan"
OUT, UPLINK, BACK, SERVICE, INSIDE, REHOME = "out", "uplink", "back", "service", "inside", "rehome"
SENDER_MAC, EDGE_MAC = 0x0AAC1F010001, 0x0AAC1F010002
_WAN_MAC, _SERVICE_MAC, _REHOME_MAC = 0x0AAC1F020000, 0x0AAC1F030000, 0x0AAC1F040000
_NEXT_HOPS = {socket.AF_INET: ("0.0.0.0/0", GATEWAY_IPV4), socket.AF_INET6: ("::/0", GATEWAY_IPV6)}
"""Where everything goes, by IP version: a gateway that has no address but a neighbour's entry."""
_NO_DETECTION = 2
"""An address that is used at once (IFA_F_NODAD)."""
_LOCAL_TABLE = 255
_SETTLE_S = 0.3
_NO_IPV6 = {"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1"}
_QUIET_IPV6 = {"net/ipv6/conf/default/addr_gen_mode": "1", "net/ipv6/conf/default/accept_ra": "0"}
_ROUTING = {
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0", "net/ipv4/icmp_ratelimit": "0",
}  # fmt: skip
_FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
"""Of servers only: the WAN's end takes what arrives, and nothing goes round."""
_KINDS = {"attack": ATTACKED_PORT, "permitted": PERMITTED_PORT}
_TABLE = "aclbench"


class Links:
    """The namespaces during the `with` block, with everything started in them.

    Needs root.
    """

    def __init__(self, layout: Layout, name: str, servers: int, owned: Iterable[Prefix]) -> None:
        self.layout = layout
        self.name = name
        self.numbers = range(1, servers + 1)
        self._owned = tuple(owned)
        roles = (OUTSIDE, EDGE, WAN, *map(server, self.numbers))
        self._names = {role: f"{layout.namespace(name)}-{role}" for role in roles}
        self._running: list[Process] = []

    def __enter__(self) -> Links:
        try:
            for role, name in self._names.items():
                namespaces.create(name)
                ipv6 = _NO_IPV6 if role in (OUTSIDE, EDGE) else _QUIET_IPV6
                namespaces.inside(name, partial(_ready, {**_ROUTING, **ipv6}))
            self.inside(EDGE, self._link)
            self.inside(OUTSIDE, _configure_outside)
            self.inside(WAN, self._configure_wan)
            for number in self.numbers:
                self.inside(server(number), partial(_configure_server, number))
        except BaseException:
            self._remove_namespaces()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_namespaces()

    def namespace(self, role: str) -> str:
        """Return the network namespace of a role."""
        return self._names[role]

    def inside(self, role: str, call: Callable[[], Result]) -> Result:
        """Call a function inside one of the namespaces and return its result."""
        return namespaces.inside(self._names[role], call)

    def start(self, role: str, *command: str, settings: Mapping[str, str] | None = None) -> Process:
        """Start a program that runs until the links are taken down. Raises Missing."""
        log = self.layout.logs / f"{self.name}-{role}-{len(self._running)}.log"
        process = processes.spawn(
            f"{self.name}-{role}", command, mark=self.layout.run_dir, log=log, namespace=self._names[role],
            settings=settings,
        )  # fmt: skip
        self._running.append(process)
        return process

    def settle(self) -> None:
        """Wait until what the servers' kernels have been given is through."""
        time.sleep(_SETTLE_S)

    def close_servers(self) -> None:
        """Make the servers receive and forward nothing, to measure the edge alone."""
        for number in self.numbers:
            self.inside(server(number), lambda: namespaces.set_kernel(dict.fromkeys(_FORWARDING, "0")))

    def ways(self) -> tuple[Way, ...]:
        """How the edge reaches its servers."""
        return tuple(Way(number, f"s{number}", _SERVICE_MAC + number) for number in self.numbers)

    def _remove_namespaces(self) -> None:
        processes.stop(self._running)
        for name in self._names.values():
            namespaces.remove(name)

    def _link(self) -> None:
        """Create the links except the return link, and the servers' bridge.

        Called inside the edge's namespace.
        """
        with IPRoute() as edge:
            edge.link("add", ifname=REHOME, kind="bridge")
            bridge = _find_index(edge, REHOME)
            edge.link("set", index=bridge, state="up")
            self._pair(edge, OUT, EDGE_MAC, OUTSIDE, INTERFACE, SENDER_MAC)
            self._pair(edge, UPLINK, EDGE_MAC + 1, WAN, EDGE, _WAN_MAC)
            for number in self.numbers:
                role = server(number)
                self._pair(edge, f"s{number}", EDGE_MAC + 1 + number, role, SERVICE, _SERVICE_MAC + number)
                self._pair(edge, f"r{number}", _REHOME_MAC + 256 + number, role, REHOME, _REHOME_MAC + number)
                edge.link("set", index=_find_index(edge, f"r{number}"), master=bridge)

    def _pair(self, here: IPRoute, name: str, mac: int, role: str, other: str, other_mac: int) -> None:
        """A link from the calling thread's namespace to another, up at both ends."""
        with descriptor(self._names[role]) as there:
            peer = {"ifname": other, "net_ns_fd": there, "address": format_mac(other_mac)}
            here.link("add", ifname=name, kind="veth", address=format_mac(mac), peer=peer)
        here.link("set", index=_find_index(here, name), state="up")
        without_offloads(name)
        self.inside(role, lambda: _up(other))

    def _configure_wan(self) -> None:
        """Links from the servers and back, and every tenant's addresses. Called inside the WAN."""
        with IPRoute() as wan:
            for number in self.numbers:
                self._pair(wan, f"in{number}", _WAN_MAC + number, server(number), INSIDE, _WAN_MAC + 256 + number)
            self._pair(wan, BACK, _WAN_MAC + 512, OUTSIDE, BACK, _WAN_MAC + 513)
            lo, back = _find_index(wan, "lo"), _find_index(wan, BACK)
            for prefix in self._owned:
                wan.route("add", dst=str(prefix), oif=lo, type="local", table=_LOCAL_TABLE, scope="host")
            _add_default_route(wan, socket.AF_INET, back, _WAN_MAC + 513)


def server(number: int) -> str:
    """The role of a firewall server."""
    return f"server{number}"


def _ready(settings: Mapping[str, str]) -> None:
    """A namespace with its kernel's settings, before there are links. Called inside."""
    namespaces.set_kernel(dict(settings))
    with IPRoute() as here:
        here.link("set", index=_find_index(here, "lo"), state="up")


def _configure_outside() -> None:
    """The permitted client, whose datagrams go to the edge. Called inside."""
    with IPRoute() as outside:
        index = _find_index(outside, INTERFACE)
        outside.addr("add", index=index, address=str(IPV4.client).partition("/")[0], prefixlen=32)
        _add_default_route(outside, socket.AF_INET, index, EDGE_MAC)


def _configure_server(number: int) -> None:
    """Set up routes and addresses of a server. Called inside its namespace."""
    namespaces.set_kernel(_FORWARDING)
    with IPRoute() as here:
        rehome = _find_index(here, REHOME)
        for address, length in (*rehome_addresses(number), (f"fe80::{number:x}", 64)):
            here.addr("add", index=rehome, address=address, prefixlen=length, flags=_NO_DETECTION)
        for family in _NEXT_HOPS:
            _add_default_route(here, family, _find_index(here, INSIDE), _WAN_MAC + number)


def _add_default_route(here: IPRoute, family: socket.AddressFamily, index: int, mac: int) -> None:
    everywhere, hop = _NEXT_HOPS[family]
    here.neigh("add", dst=hop, lladdr=format_mac(mac), ifindex=index, state="permanent", family=family)
    here.route("add", dst=everywhere, gateway=hop, oif=index, flags=["onlink"], family=family)


def _up(name: str) -> None:
    """Set a link up without multicast reports.

    Where servers meet, they need multicast to resolve addresses.
    """
    changed = IFF_UP if name == REHOME else IFF_UP | IFF_MULTICAST
    with IPRoute() as here:
        here.link("set", index=_find_index(here, name), flags=IFF_UP, change=changed)
    without_offloads(name)


def _find_index(routes: IPRoute, name: str) -> int:
    return int(routes.link_lookup(ifname=name)[0])


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes, with their IP headers."""

    packets: int
    bytes: int

    def since(self, before: Counted) -> Counted:
        """Return what was counted since an earlier count."""
        return Counted(self.packets - before.packets, self.bytes - before.bytes)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The arrivals so far."""

    attack: Counted
    permitted: Counted

    def since(self, before: Arrived) -> Arrived:
        """Return what arrived since an earlier count."""
        return Arrived(self.attack.since(before.attack), self.permitted.since(before.permitted))


class Wan:
    """The WAN's end of a point of presence.

    It counts arrivals before its kernel looks at them.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        counters = "\n".join(f"counter {name} {{ }}" for name in _KINDS)
        rules = "\n".join(f'udp dport {port} counter name "{name}"' for name, port in _KINDS.items())
        hook = "type filter hook prerouting priority raw; policy accept;"
        self._run_nft(text=f"table inet {_TABLE} {{\n{counters}\nchain arriving {{ {hook}\n{rules}\n}}\n}}\n")

    def count_arrived(self) -> Arrived:
        """Count everything that has arrived so far."""
        document = json.loads(self._run_nft("-j", "list", "counters", "table", "inet", _TABLE))
        found = {
            each["counter"]["name"]: Counted(each["counter"]["packets"], each["counter"]["bytes"])
            for each in document["nftables"]
            if "counter" in each
        }
        return Arrived(found["attack"], found["permitted"])

    def _run_nft(self, *arguments: str, text: str = "") -> str:
        command = ["nft", *(arguments or ("-f", "-"))]
        try:
            done = self._links.inside(
                WAN, lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            )
        except FileNotFoundError:
            raise Missing("there is no program 'nft' here: apt-get install nftables") from None
        if done.returncode:
            raise Refused(f"nft: {done.stderr.strip()[:500]}")
        return done.stdout

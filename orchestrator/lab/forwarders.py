"""Plain firewalls: namespaces that forward between two interfaces, with any filter.

    switches' namespace: port ══ left ─ firewall ─ right ══ port

Nobody speaks by himself, neighbours are fixed, and no interface joins or splits segments, so that every packet meets
the filter, as on a wire. There is no agent: measurements and tests load what they try.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyroute2 import IPRoute

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_MAC
from orchestrator.errors import Missing, NotFound, Refused
from orchestrator.lab import namespaces, network
from orchestrator.lab.spec import LEFT, RIGHT
from orchestrator.policy.addresses import format_mac

_ROUTING = {
    "net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1",
}  # fmt: skip
_BURST_OCTETS = 32_000
_QUEUE_S = 0.1
"""The time that packets may wait for their turn: on shared processors packets come in bursts."""


@dataclass(frozen=True, slots=True)
class Forwarder:
    """A firewall's namespace, with the switches' interface and its own MAC per side (left, right)."""

    namespace: str
    left: tuple[str, int]
    right: tuple[str, int]

    @property
    def ports(self) -> tuple[str, str]:
        """The switches' interfaces."""
        return self.left[0], self.right[0]

    def create(self, switches: str, *tenants: str) -> None:
        """Create it, joined to the switches' namespace.

        Packets for the prefixes `tenants` go right, all others left.
        """
        namespaces.create(self.namespace)
        namespaces.inside(switches, self._add_links)
        namespaces.inside(self.namespace, partial(_route, tenants))

    def remove(self) -> None:
        """Remove it with its links before returning.

        A namespace's own links go only when the kernel comes to it.
        """
        with contextlib.suppress(NotFound):
            namespaces.inside(self.namespace, _unlink)
        namespaces.remove(self.namespace)

    def run(self, *command: str, text: str = "") -> str:
        """Run a program inside, with input `text`; return its output.

        Raises Missing, Refused.
        """
        try:
            done = namespaces.inside(
                self.namespace,
                lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False),
            )
        except FileNotFoundError:
            raise Missing(f"the program '{command[0]}' is not installed") from None
        if done.returncode:
            raise Refused(f"{command[0]}: {done.stderr.strip()[:2000]}")
        return done.stdout

    def cap(self, bits_per_s: int) -> None:
        """Let no more than so much out on either side: a token bucket."""
        namespaces.inside(self.namespace, partial(cap_links, bits_per_s))

    def count_forwarded(self) -> int:
        """Packets that went out on the right so far."""
        return namespaces.inside(self.namespace, _sent_right)

    def _add_links(self) -> None:
        with IPRoute() as switches, network.descriptor(self.namespace) as inside:
            for (port, mac), name in ((self.left, LEFT), (self.right, RIGHT)):
                peer = {"ifname": name, "net_ns_fd": inside, "address": format_mac(mac)}
                switches.link("add", ifname=port, kind="veth", peer=peer)
                switches.link("set", index=switches.link_lookup(ifname=port)[0], state="up")
        network.without_offloads(*self.ports)


def _unlink() -> None:
    """Remove the links. Called inside the firewall."""
    with IPRoute() as links:
        for name in (LEFT, RIGHT):
            for index in links.link_lookup(ifname=name):
                links.link("del", index=index)


def _route(tenants: Sequence[str]) -> None:
    """Add routes to the tenants. Called inside the firewall."""
    namespaces.set_kernel(_ROUTING)
    network.without_offloads(LEFT, RIGHT)
    with IPRoute() as routes:
        routes.link("set", index=routes.link_lookup(ifname="lo")[0], state="up")
        for name, prefixes in ((LEFT, ("0.0.0.0/0",)), (RIGHT, tenants)):
            index = routes.link_lookup(ifname=name)[0]
            namespaces.set_kernel({f"net/ipv4/conf/{name}/{key}": "0" for key in ("rp_filter", "send_redirects")})
            routes.link("set", index=index, state="up")
            routes.neigh("add", dst=GATEWAY_IPV4, lladdr=format_mac(GATEWAY_MAC), ifindex=index, state="permanent")
            for prefix in prefixes:
                routes.route("add", dst=prefix, gateway=GATEWAY_IPV4, oif=index, flags=["onlink"])


def _sent_right() -> int:
    """Count the packets sent to the right. Called inside the firewall."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()
    (numbers,) = [line.partition(":")[2].split() for line in lines if line.strip().startswith(f"{RIGHT}:")]
    return int(numbers[9])


def cap_links(bits_per_s: int) -> None:
    """Let no more than so much out on either side. Called inside a firewall."""
    interfaces: Sequence[str] = (LEFT, RIGHT)
    with IPRoute() as routes:
        for name in interfaces:
            index = routes.link_lookup(ifname=name)[0]
            routes.tc(
                "replace", "tbf", index, 0x10000, rate=bits_per_s // 8, burst=_BURST_OCTETS,
                latency=f"{round(_QUEUE_S * 1000)}ms",
            )  # fmt: skip

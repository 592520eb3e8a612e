"""A lab's edge switch: a bridge between clients and the rest, with firewall servers behind.

    clients ── edge bridge ─ out-pop ═ pop-out ─┐           ┌─ fl-fs1 ══ left ─ server ─ right ══ fr-fs1 ── edge bridge
                                                pop bridge ─┤
    hosts ──── edge bridge ─ wan-pop ═ pop-wan ─┘           └─ fl-fs2 ══ ...

The edge bridge is the routers around it: the Internet on one side, the WAN with the hosts on the other. Packets of
clients meet the edge switch, which sends them straight to the WAN, to the server that knows their tenant, or nowhere;
what servers permit goes to the WAN by itself. Its controller is `aclflow controller --tier edge`.

Servers hand packets that are another one's to it over a segment of their own, the bridge `rehome`.
"""

from __future__ import annotations

from orchestrator.lab.sidebridge import SideBridge

POP_SWITCH = SideBridge("pop", "0000ac1f00000400", 6655, {"pop-out": "out-pop", "pop-wan": "wan-pop"})
EDGE_NAME = "edge1"
"""The edge switch's name at the service."""
OUTSIDE_PORT, UPLINK_PORT = POP_SWITCH.joints
FROM_CLIENTS = POP_SWITCH.joints[OUTSIDE_PORT]
"""The edge bridge's port that leads to it."""

REHOME_BRIDGE = "rehome"
REHOME_INTERFACE = "rehome"
"""The name of a server's interface on that segment, inside the server."""


def rehome_addresses(number: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return a server's IPv4 and IPv6 address on the segment, each with its prefix length."""
    return (f"169.254.66.{number}", 24), (f"fd66::{number:x}", 64)

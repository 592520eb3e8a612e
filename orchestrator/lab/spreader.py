"""A lab's spread switch: a bridge between edge and hosts, with firewall VNFs attached.

    edge bridge ─ spread-out ═ sp-out ─┐            ┌─ fl-fw-0 ══ left ─ firewall ─ right ══ fr-fw-0
                                       spread bridge├─ fl-fw-1 ══ ...
    edge bridge ─ spread-in ══ sp-in ──┘            └─ ...

Packets from clients to tenants, and from hosts, meet it before it goes on. The service says who owns which part of the
traffic; its controller is `aclflow controller --spreads`.
"""

from __future__ import annotations

from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.hosts.ovs import join_commands
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.sidebridge import SideBridge

SPREAD_SWITCH = SideBridge("spread", "0000ac1f00000300", 6654, {OUTSIDE_PORT: "spread-out", INSIDE_PORT: "spread-in"})
BRIDGE, DATAPATH, CONTROLLER_PORT = SPREAD_SWITCH.name, SPREAD_SWITCH.datapath, SPREAD_SWITCH.controller_port
FROM_CLIENTS, FROM_HOSTS = SPREAD_SWITCH.joints[OUTSIDE_PORT], SPREAD_SWITCH.joints[INSIDE_PORT]
"""The edge bridge's ports that lead to it."""


def attach(ovs: OpenVSwitch, ports: tuple[str, ...]) -> None:
    """Give the bridge a firewall's interfaces."""
    ovs.vsctl(*join_commands(("--may-exist", "add-port", BRIDGE, port) for port in ports))


def detach(ovs: OpenVSwitch, ports: tuple[str, ...]) -> None:
    """Take a firewall's interfaces from the bridge; they may be gone already."""
    ovs.vsctl(*join_commands(("--if-exists", "del-port", BRIDGE, port) for port in ports))

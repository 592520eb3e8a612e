"""A bridge beside the edge bridge, with a controller of its own: packets go there and come back over patch ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.lab.ovs import OpenVSwitch


@dataclass(frozen=True, slots=True)
class SideBridge:
    """Its name, its datapath id, the port that its controller listens on, and its joints to the edge bridge: its own
    ports, and those that they lead to."""

    name: str
    datapath: str
    controller_port: int
    joints: Mapping[str, str]

    def commands(self, edge_bridge: str, controller: str) -> list[str]:
        """`ovs-vsctl` commands for what is behind the bridge's making: its controller's address, its joints."""
        made = ["--", *self._controlled(controller)]
        for inner, outer in self.joints.items():
            made += _patch(self.name, inner, outer) + _patch(edge_bridge, outer, inner)
        return made

    def redial(self, ovs: OpenVSwitch, controller: str, scheme: str) -> None:
        """Have the bridge try to reach its controller at once, over ``tcp`` or ``ssl``; its flows stay, for it fails
        secure."""
        ovs.vsctl("--no-wait", "del-controller", self.name)
        ovs.vsctl("--no-wait", *self._controlled(controller, scheme))

    def _controlled(self, controller: str, scheme: str = "tcp") -> list[str]:
        target = f"{scheme}:{controller}:{self.controller_port}"
        patient = ["connection_mode=out-of-band", "max_backoff=1000", "inactivity_probe=5000"]
        return ["set-controller", self.name, target, "--", "set", "controller", self.name, *patient]


def _patch(bridge: str, port: str, peer: str) -> list[str]:
    return ["--", "add-port", bridge, port, "--", "set", "interface", port, "type=patch", f"options:peer={peer}"]

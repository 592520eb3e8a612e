"""A bridge beside the edge bridge, joined by patch ports, with its own controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.hosts.ovs import join_commands
from orchestrator.lab.ovs import OpenVSwitch, bridge_commands, control_commands


@dataclass(frozen=True, slots=True)
class SideBridge:
    """A side bridge: name, datapath id, controller port, and patch ports to the edge bridge.

    `joints` maps its own ports to the edge bridge's.
    """

    name: str
    datapath: str
    controller_port: int
    joints: Mapping[str, str]

    def commands(self, edge_bridge: str, controller: str) -> Iterator[Sequence[str]]:
        """Yield `ovs-vsctl` commands for the bridge, its controller's address and its joints."""
        yield from bridge_commands(self.name, self.datapath)
        yield from control_commands(self.name, self._targets(controller, "tcp")[0])
        for inner, outer in self.joints.items():
            yield from _make_patch_commands(self.name, inner, outer)
            yield from _make_patch_commands(edge_bridge, outer, inner)

    def redial(self, ovs: OpenVSwitch, controller: str, scheme: str) -> None:
        """Make the bridge connect to its controller at once, over ``tcp`` or ``ssl``; flows stay.

        A target that is written otherwise makes it begin anew. It is never without one: Open vSwitch takes all flows
        away from a bridge that loses its last controller, however it fails.
        """
        plain, bracketed = self._targets(controller, scheme)
        now = ovs.vsctl("get-controller", self.name).strip()
        ovs.vsctl("--no-wait", *join_commands(control_commands(self.name, bracketed if now == plain else plain)))

    def _targets(self, controller: str, scheme: str) -> tuple[str, str]:
        """Return two ways to write where the controller is."""
        return f"{scheme}:{controller}:{self.controller_port}", f"{scheme}:[{controller}]:{self.controller_port}"


def _make_patch_commands(bridge: str, port: str, peer: str) -> list[Sequence[str]]:
    return [("add-port", bridge, port), ("set", "interface", port, "type=patch", f"options:peer={peer}")]

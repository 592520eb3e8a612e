"""An edge switch by itself: a bridge of a lab's Open vSwitch, driven by our driver, with one port to send into.

Its servers' ports lead nowhere: what left by them is known from the switch's counters.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from pyroute2 import IPRoute

from orchestrator.bench.benchlab import wait_connected
from orchestrator.bench.traffic.vnf import handled_packets
from orchestrator.compile.edgeprogram import packets_of_lines
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow import flowdesc, messages
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.hosts.ovs import join_commands
from orchestrator.lab import namespaces
from orchestrator.lab.pop import Lab
from orchestrator.policy.addresses import Family
from orchestrator.program.program import Program, Tier

BRIDGE, OUTSIDE, _SENDER = "tcam", "outside", "sender"
_DATAPATH = 0xAC1F00000401
_BATCH = 128
"""Packets that are sent before it is waited for that the switch has taken them."""
_PATIENCE_S = 30.0


@dataclass(slots=True)
class EdgeBridge:
    """A running edge switch. Made by `edge_bridge`."""

    lab: Lab
    channel: Channel
    device: Switch
    sender: socket.socket
    sent: int = 0

    def load(self, program: Program) -> None:
        """Have the switch hold this program, and read it back."""
        self.device.apply(gap.correction(self.device.observe(), program, self.device.resolve), gap.stamp_of(program))
        rows = self.device.resolve(program.flows, program.ports)
        wrong = gap.mismatch(self.device.observe(), rows, gap.stamp_of(program))
        assert wrong is None, wrong.text

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames into the outside port, no faster than the switch takes them."""
        for start in range(0, len(frames), _BATCH):
            for frame in frames[start : start + _BATCH]:
                self.sender.send(frame)
            self.sent += len(frames[start : start + _BATCH])
            self._settle()

    def _settle(self) -> None:
        until = time.monotonic() + _PATIENCE_S
        while self.count_handled() < self.sent:
            assert time.monotonic() < until, f"{self.count_handled()} of {self.sent} packets were dealt with"

    def count_handled(self) -> int:
        return handled_packets(self.lab.ovs.appctl("dpctl/show"))

    def forget(self) -> None:
        """Empty the switch's cache, which brings the counters up to date."""
        self.lab.ovs.forget()

    def counted(self, family: Family, lines: int) -> np.ndarray:
        """What each line has counted."""
        self.forget()
        xids = self.channel.reserve(2)
        whole = flowdesc.request(xids[0]) + messages.barrier_request(xids[1])
        answers = self.channel.exchange(whole, xids, timeout_s=_PATIENCE_S)
        stats = flowdesc.decode(messages.multipart_replies(answers, xids))
        return packets_of_lines(stats.flows, stats.packets, family, lines)

    def trace(self, flow: str) -> str:
        """What the switch says that it would do with a packet."""
        number = self.channel.ports[OUTSIDE]
        return self.lab.ovs.appctl("ofproto/trace", BRIDGE, f"in_port={number},{flow}")


@contextmanager
def edge_bridge(lab: Lab, servers: Sequence[str]) -> Iterator[EdgeBridge]:
    """An edge switch with ports of these names, `outside` and `wan`."""
    address, port = lab.controller_address
    namespaces.inside(lab.layout.ovs_namespace, lambda: _create_ports((*servers, "wan")))
    lab.ovs.add_bridge(BRIDGE, _DATAPATH)
    lab.ovs.vsctl("set-controller", BRIDGE, f"tcp:{address}:{port}")
    lab.ovs.vsctl(*join_commands(("add-port", BRIDGE, name) for name in (OUTSIDE, *servers, "wan")))
    sender = namespaces.inside(lab.layout.ovs_namespace, _open)
    with wait_connected(lambda observer: Launcher(Listen(address, port), observer), {_DATAPATH}) as channels:
        device = Switch(channels[_DATAPATH], uplink="wan", tier=Tier.EDGE)
        assert device.claim(1)
        bridge = EdgeBridge(lab, channels[_DATAPATH], device, sender)
        bridge.sent = bridge.count_handled()
        yield bridge
    sender.close()


def _create_ports(names: Sequence[str]) -> None:
    with IPRoute() as switches:
        ends = {OUTSIDE: _SENDER} | {name: f"{name}-end" for name in names}
        for name, end in ends.items():
            switches.link("add", ifname=name, kind="veth", peer={"ifname": end})
            for each in (name, end):
                switches.link("set", index=switches.link_lookup(ifname=each)[0], state="up")


def _open() -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.bind((_SENDER, 0))
    return raw

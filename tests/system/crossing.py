"""Packets from outside to every endpoint of a lab's PoP, held against what its policy says."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab import namespaces
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.wire import Wire, raw_socket, shot
from orchestrator.policy.model import Acl, Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

_PATIENCE_S = 20.0
TCP_PORTS, UDP_PORTS = (22, 25, 80, 443, 5432, 8443), (53, 9999)


class Site(NamedTuple):
    lab: Lab
    plane: ControlPlane
    policy: Policy
    acls: Mapping[str, Acl]


def from_outside(site: Site) -> list[tuple[str, str, Packet]]:
    """Packets from every client to every endpoint, with who sends and who should be reached, in the IP versions that
    both have."""
    found = []
    for client, endpoint in product(site.lab.spec.clients, site.lab.spec.endpoints):
        mine, theirs = ({each.family: each.network for each in node.addresses} for node in (client, endpoint))
        for family in sorted(mine.keys() & theirs.keys()):
            source, destination = mine[family], theirs[family]
            plain = Packet(family, source, destination, TCP, 40000, 0, tcp_flags=TcpFlag.SYN)
            found += [(client.name, endpoint.name, replace(plain, destination_port=port)) for port in TCP_PORTS]
            found += [
                (client.name, endpoint.name, replace(plain, protocol=UDP, tcp_flags=0, destination_port=port))
                for port in UDP_PORTS
            ]
    return found


def check(site: Site) -> int:
    """Send all of them: what the policy permits arrives, and nothing else; how many were permitted."""
    tried = from_outside(site)
    with Wire(site.lab) as wire:
        landed = wire.fire([shot(site.lab, sender, packet) for sender, _, packet in tried])
    permitted = 0
    for (_, receiver, packet), landing in zip(tried, landed, strict=True):
        expected = decide(site.policy, packet).permitted
        permitted += expected
        assert landing.nodes == ((receiver,) if expected else ()), packet
    return permitted


def nothing_leaks(site: Site, *policies: Policy) -> None:
    """Send all of them while something changes: what arrives, one of the policies permits."""
    tried = from_outside(site)
    with Wire(site.lab) as wire:
        landed = wire.fire([shot(site.lab, sender, packet) for sender, _, packet in tried])
    for (_, receiver, packet), landing in zip(tried, landed, strict=True):
        permitted = any(decide(policy, packet).permitted for policy in policies)
        assert set(landing.nodes) <= ({receiver} if permitted else set()), packet


def arrived_by(lab: Lab, port: str, mac: int, receiver: str, packets: Sequence[Packet]) -> list[bool]:
    """Which of some packets, put straight into a link by the switches' end, come to an endpoint. The last one must."""
    run = os.urandom(6)
    marked = [run + struct.pack("!I", number) for number in range(len(packets))]
    seen: set[int] = set()
    catcher = lab.inside(receiver, raw_socket)
    sender = namespaces.inside(lab.layout.ovs_namespace, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
    with catcher, sender:
        sender.bind((port, 0))
        until = time.monotonic() + _PATIENCE_S
        while len(packets) - 1 not in seen and time.monotonic() < until:
            for packet, marker in zip(packets, marked, strict=True):
                sender.send(frames.frame(packet, src_mac=GATEWAY_MAC, dst_mac=mac, payload=marker))
            while select.select([catcher], [], [], 0.3)[0]:
                frame = catcher.recv(2048)
                seen |= {number for number, marker in enumerate(marked) if marker in frame}
    return [number in seen for number in range(len(packets))]

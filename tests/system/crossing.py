"""Packets from outside to every endpoint of a lab's PoP, held against what its policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl, Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

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

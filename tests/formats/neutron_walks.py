"""Second, independent readings of Neutron's lists and of network policies: one whole packet against the document."""

from __future__ import annotations

import ipaddress
from typing import Any

import yaml

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction, Packet

NUMBERS = {"tcp": 6, "udp": 17, "sctp": 132, "ipv6-icmp": 58, "gre": 47, "vrrp": 112}


def inside(prefix: str | None, packet: Packet, value: int) -> bool:
    if prefix is None:
        return True
    network = ipaddress.ip_network(prefix, strict=False)
    same = network.version == packet.family.value
    return same and int(network.network_address) <= value <= int(network.broadcast_address)


def far_of(packet: Packet, direction: Direction) -> int:
    return packet.source if direction is Direction.INGRESS else packet.destination


def number_of(protocol: str | None, family: Family) -> int | None:
    if protocol in (None, "any"):
        return None
    if protocol == "icmp":
        return 1 if family is Family.IPV4 else 58
    return NUMBERS[protocol] if protocol in NUMBERS else int(protocol)


def group_permits(
    group: dict[str, Any], direction: Direction, packet: Packet, known: dict[str, list[str]] | None = None
) -> bool:
    """Whether some rule of a security group holds for a packet; unknown remote groups have no members."""
    return any(_rule_holds(rule, direction, packet, known or {}) for rule in group["security_group_rules"])


def _rule_holds(rule: dict[str, Any], direction: Direction, packet: Packet, known: dict[str, list[str]]) -> bool:
    if (rule["direction"], rule["ethertype"]) != (direction.value, f"IPv{packet.family.value}"):
        return False
    far = far_of(packet, direction)
    remote = rule.get("remote_group_id")
    if remote is not None:
        if not any(inside(prefix, packet, far) for prefix in known.get(remote, [])):
            return False
    elif not inside(rule["remote_ip_prefix"], packet, far):
        return False
    number = number_of(rule["protocol"], packet.family)
    if number is None:
        return True
    if number != packet.protocol:
        return False
    low, high = rule["port_range_min"], rule["port_range_max"]
    if number in (1, 58):
        return low in (None, packet.icmp_type) and high in (None, packet.icmp_code)
    return low is None or low <= packet.destination_port <= high


def firewall_permits(document: dict[str, Any], direction: Direction, packet: Packet) -> bool:
    """What the first rule that holds says; the policies are called after the directions."""
    rules = {rule["id"]: rule for rule in document["firewall_rules"]}
    policy = next(one for one in document["firewall_policies"] if one["id"] == direction.value)
    for identity in policy["firewall_rules"]:
        rule = rules[identity]
        if not rule["enabled"] or rule["ip_version"] != packet.family.value:
            continue
        number = number_of(rule["protocol"], packet.family)
        if number not in (None, packet.protocol):
            continue
        if not inside(rule["source_ip_address"], packet, packet.source):
            continue
        if not inside(rule["destination_ip_address"], packet, packet.destination):
            continue
        if _port(rule["source_port"], packet.source_port) and _port(rule["destination_port"], packet.destination_port):
            return rule["action"] == "allow"
    return False


def _port(text: str | None, port: int) -> bool:
    if text is None:
        return True
    low, _, high = text.partition(":")
    return int(low) <= port <= int(high or low)


def policies_permit(text: str, direction: Direction, packet: Packet, known: dict[str, list[str]]) -> bool:
    """Whether the policies of a text, all of which select the same pods, let a packet pass; `known` explains peers."""
    key, peer_key = (("Ingress", "from"), ("Egress", "to"))[direction is Direction.EGRESS]
    about = [policy["spec"] for policy in yaml.safe_load_all(text) if key in policy["spec"]["policyTypes"]]
    if not about:
        return True
    return any(
        _peers_hold(rule.get(peer_key), packet, far_of(packet, direction), known)
        and _ports_hold(rule.get("ports"), packet)
        for spec in about
        for rule in spec.get(key.lower()) or []
    )


def _peers_hold(peers: list[Any] | None, packet: Packet, far: int, known: dict[str, list[str]]) -> bool:
    if not peers:
        return True
    for peer in peers:
        block = peer.get("ipBlock")
        if block is None:
            (name,) = peer["podSelector"]["matchLabels"].values()
            if any(inside(prefix, packet, far) for prefix in known.get(name, [])):
                return True
        elif inside(block["cidr"], packet, far) and not any(
            inside(hole, packet, far) for hole in block.get("except", [])
        ):
            return True
    return False


def _ports_hold(ports: list[Any] | None, packet: Packet) -> bool:
    if not ports:
        return True
    for port in ports:
        if {"TCP": 6, "UDP": 17, "SCTP": 132}[port.get("protocol", "TCP")] != packet.protocol:
            continue
        low = port.get("port")
        if low is None or (isinstance(low, int) and low <= packet.destination_port <= port.get("endPort", low)):
            return True
    return False

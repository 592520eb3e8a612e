"""Second, independent readings of the clouds' lists: one whole packet against the JSON, as its documents say."""

from __future__ import annotations

import ipaddress
import json

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction, Packet

AWS_NAMES = {"tcp": "6", "udp": "17", "icmp": "1", "icmpv6": "58"}


def inside(prefix: str, packet: Packet, value: int) -> bool:
    network = ipaddress.ip_network(prefix, strict=False)
    return network.version == packet.family.value and (
        int(network.network_address) <= value <= int(network.broadcast_address)
    )


def far_of(packet: Packet, direction: Direction) -> int:
    return packet.source if direction is Direction.INGRESS else packet.destination


def aws_service(protocol: str, low: int | None, high: int | None, packet: Packet) -> bool:
    number = AWS_NAMES.get(protocol, protocol)
    if number == "-1":
        return True
    if int(number) != packet.protocol:
        return False
    if number in ("6", "17"):
        return low <= packet.destination_port <= high
    if number == ("58" if packet.family is Family.IPV6 else "1"):
        return low in (None, -1, packet.icmp_type) and high in (None, -1, packet.icmp_code)
    return number not in ("1", "58")


def security_group(text: str, direction: Direction, packet: Packet) -> bool:
    """Whether some permission of the only group holds for a packet."""
    (group,) = json.loads(text)["SecurityGroups"]
    permissions = group["IpPermissions" if direction is Direction.INGRESS else "IpPermissionsEgress"]
    far = far_of(packet, direction)
    return any(
        aws_service(one["IpProtocol"], one.get("FromPort"), one.get("ToPort"), packet)
        and any(
            inside(block, packet, far)
            for block in [
                *(each["CidrIp"] for each in one["IpRanges"]),
                *(each["CidrIpv6"] for each in one["Ipv6Ranges"]),
            ]
        )
        for one in permissions
    )


def network_acl(text: str, direction: Direction, packet: Packet) -> bool:
    """What the first entry that matches, by number, says."""
    (acl,) = json.loads(text)["NetworkAcls"]
    for entry in sorted(acl["Entries"], key=lambda each: each["RuleNumber"]):
        if entry["Egress"] is not (direction is Direction.EGRESS):
            continue
        ports, kind = entry.get("PortRange", {}), entry.get("IcmpTypeCode", {})
        low, high = ports.get("From", kind.get("Type")), ports.get("To", kind.get("Code"))
        block = entry.get("CidrBlock", entry.get("Ipv6CidrBlock"))
        if aws_service(entry["Protocol"], low, high, packet) and inside(block, packet, far_of(packet, direction)):
            return entry["RuleAction"] == "allow"
    return False


AZURE_NUMBERS = {"tcp": 6, "udp": 17, "icmp": 1, "esp": 50, "ah": 51}


def azure(text: str, direction: Direction, packet: Packet, tags: dict[str, list[str]]) -> bool:
    """What the matching rule of the lowest priority says. Without a rule that matches, Azure's own ones deny."""
    rules = [{**rule, **rule.get("properties", {})} for rule in json.loads(text)["securityRules"]]
    wanted = "Inbound" if direction is Direction.INGRESS else "Outbound"
    for rule in sorted(rules, key=lambda each: each["priority"]):
        protocol = rule["protocol"].lower()
        if (
            rule["direction"] == wanted
            and protocol
            in ("*", next((name for name, number in AZURE_NUMBERS.items() if number == packet.protocol), ""))
            and azure_ports(rule, "source", packet, packet.source_port)
            and azure_ports(rule, "destination", packet, packet.destination_port)
            and azure_addresses(rule, "source", packet, packet.source, tags)
            and azure_addresses(rule, "destination", packet, packet.destination, tags)
        ):
            return rule["access"] == "Allow"
    return False


def azure_words(rule: dict[str, object], key: str, several: str) -> list[str]:
    return [*([rule[key]] if rule.get(key) else []), *rule.get(several, [])]


def azure_ports(rule: dict[str, object], side: str, packet: Packet, value: int) -> bool:
    words = azure_words(rule, f"{side}PortRange", f"{side}PortRanges")
    if "*" in words or rule["protocol"].lower() in ("icmp", "esp", "ah"):
        return True
    ends = [word.split("-") for word in words]
    return packet.protocol in (6, 17) and any(int(end[0]) <= value <= int(end[-1]) for end in ends)


def azure_addresses(rule: dict[str, object], side: str, packet: Packet, value: int, tags: dict[str, list[str]]) -> bool:
    words = azure_words(rule, f"{side}AddressPrefix", f"{side}AddressPrefixes")
    prefixes = [prefix for word in words if word != "*" for prefix in tags.get(word, [word])]
    return "*" in words or any(inside(prefix, packet, value) for prefix in prefixes)

"""Packets, rules and lines of lists in a few words, for tables that people read."""

from __future__ import annotations

from orchestrator.lab.counters import Line
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import RETURN_RULE_ID, Packet, Policy, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, format_protocol
from orchestrator.policy.tcpflags import TcpFlag


def of_packet(packet: Packet) -> str:
    """Describe a packet in short: ``tcp 80 syn``, ``icmp 8/0``, ``gre``, ``udp, later fragment``."""
    name = format_protocol(packet.protocol)
    if packet.later_fragment:
        return f"{name}, later fragment"
    if packet.protocol in (ICMP, ICMPV6):
        return f"{name} {packet.icmp_type}/{packet.icmp_code}"
    if packet.protocol not in WITH_PORTS:
        return name
    words = f"{name} {packet.destination_port}"
    return f"{words} {_flags(packet.tcp_flags)}" if packet.protocol == TCP else words


def of_line(policy: Policy, line: Line) -> str:
    """Describe a line: its tenant, then the rule in short."""
    tenant = next(tenant for tenant in policy.tenants if tenant.id == line.tenant)
    if line.rule is None:
        return f"{line.tenant}: {line.direction.value} default, {tenant.acl.default(line.direction).value}"
    if line.rule == RETURN_RULE_ID:
        return f"{line.tenant}: {line.direction.value} return traffic, permit"
    return f"{line.tenant}: {of_rule(next(rule for rule in tenant.acl.rules if rule.id == line.rule))}"


def of_rule(rule: Rule) -> str:
    """A rule in short: ``permit tcp any -> 198.51.100.10 80,443``."""
    parts = [rule.action.value, "ip" if rule.protocol is None else format_protocol(rule.protocol)]
    parts += [_side(rule.source, rule.source_ports), "->", _side(rule.destination, rule.destination_ports)]
    if rule.icmp_type is not None:
        parts.append(str(rule.icmp_type) if rule.icmp_code is None else f"{rule.icmp_type}/{rule.icmp_code}")
    if rule.established:
        parts.append("established")
    if rule.tcp_flags is not None:
        parts.append(f"{_flags(rule.tcp_flags.value)} of {_flags(rule.tcp_flags.mask)}")
    if rule.fragments:
        parts.append("fragments")
    return " ".join(parts)


def _side(addresses: Addresses, ports: tuple[PortRange, ...]) -> str:
    words = _some([_prefix(str(prefix)) for prefix in addresses.prefixes] + [f"@{name}" for name in addresses.groups])
    return (words or "any") + ("" if ports == EVERY_PORT else f" {_some([str(each) for each in ports])}")


def _prefix(text: str) -> str:
    return text.removesuffix("/128" if ":" in text else "/32")


def _some(words: list[str], most: int = 3) -> str:
    shown = ",".join(words[:most])
    return f"{shown},+{len(words) - most}" if len(words) > most else shown


def _flags(flags: int) -> str:
    return "+".join(str(flag.name).lower() for flag in TcpFlag if flag & flags) or "no flags"

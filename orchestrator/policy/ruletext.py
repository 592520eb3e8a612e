"""Rules as text for people: one side, other matches, a rule in one line."""

from __future__ import annotations

from orchestrator.policy.addresses import Addresses
from orchestrator.policy.dscp import code_points_text
from orchestrator.policy.endpointnames import reference_text
from orchestrator.policy.fields import DSCP, OF_ICMP
from orchestrator.policy.model import Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import format_protocol
from orchestrator.policy.tcpflags import TcpFlag

_MOST_WORDS = 3


def rule_text(rule: Rule) -> str:
    """A rule in one line: ``ingress permit tcp any > 198.51.100.7 port 443, logged``."""
    protocol = "any" if rule.protocol is None else format_protocol(rule.protocol)
    ends = (side_text(rule.source, rule.source_ports), side_text(rule.destination, rule.destination_ports))
    what = f"{rule.direction.value} {rule.action.value} {protocol} {ends[0]} > {ends[1]}"
    return ", ".join((what, *more_words(rule)))


def side_text(addresses: Addresses, ports: tuple[PortRange, ...]) -> str:
    """One side of a rule: ``@web port 80, 443``."""
    words = [reference_text(f"@{name}") for name in addresses.groups] + [str(prefix) for prefix in addresses.prefixes]
    text = _shorten_words(words) if words else "any"
    return text if ports == EVERY_PORT else f"{text} port {_shorten_words([str(each) for each in ports])}"


def more_words(rule: Rule) -> list[str]:
    """Return a rule's other matches and actions as words."""
    words = []
    if rule.icmp:
        words.append(" ".join(f"{field.label} {number}" for field, number in zip(OF_ICMP, rule.icmp, strict=False)))
    if rule.established:
        words.append("established")
    if rule.tcp_flags is not None:
        names = [
            ("" if flag & rule.tcp_flags.value else "no ") + (flag.name or "").lower()
            for flag in TcpFlag
            if flag & rule.tcp_flags.mask
        ]
        words.append(" ".join(names))
    words += ip_words(rule)
    if rule.expires is not None:
        words.append(f"until {rule.expires:%Y-%m-%d %H:%M} UTC")
    if rule.log:
        words.append("logged")
    if rule.stateless:
        words.append("stateless")
    return words


def ip_words(rule: Rule) -> list[str]:
    """Return the words for a rule's fields of the IP header but addresses and protocol."""
    dscp = [] if rule.dscp is None else [f"{DSCP.label} {code_points_text(rule.dscp, ', ')}"]
    return [*dscp, *(["later fragments"] if rule.fragments else [])]


def _shorten_words(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_WORDS])
    return shown if len(words) <= _MOST_WORDS else f"{shown} and {len(words) - _MOST_WORDS} more"

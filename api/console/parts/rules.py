"""Rules in words: what a table's cells say of a rule, and a rule's form as JSON. Pure."""

from __future__ import annotations

from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Rule, TcpFlag
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import format_protocol

_MOST_WORDS = 3


def row_of(place: int, rule: Rule, mark: str = "") -> dict[str, object]:
    """A rule as a row of a table. `place` is counted from 1."""
    return {
        "id": rule.id,
        "place": place,
        "action": rule.action.value,
        "direction": rule.direction.value,
        "protocol": "any" if rule.protocol is None else format_protocol(rule.protocol),
        "source": side_text(rule.source, rule.source_ports),
        "destination": side_text(rule.destination, rule.destination_ports),
        "more": ", ".join(more_words(rule)),
        "description": rule.description,
        "mark": mark,
    }


def side_text(addresses: Addresses, ports: tuple[PortRange, ...]) -> str:
    """One side of a rule: ``@web port 80, 443``."""
    words = ["@" + name for name in addresses.groups] + [str(prefix) for prefix in addresses.prefixes]
    text = _cut(words) if words else "any"
    return text if ports == EVERY_PORT else f"{text} port {_cut([str(each) for each in ports])}"


def more_words(rule: Rule) -> list[str]:
    """What else a rule looks at or does."""
    words = []
    if rule.icmp_type is not None:
        words.append(f"type {rule.icmp_type}" + (f" code {rule.icmp_code}" if rule.icmp_code is not None else ""))
    if rule.established:
        words.append("established")
    if rule.tcp_flags is not None:
        names = [
            ("" if flag & rule.tcp_flags.value else "no ") + (flag.name or "").lower()
            for flag in TcpFlag
            if flag & rule.tcp_flags.mask
        ]
        words.append(" ".join(names))
    if rule.fragments:
        words.append("later fragments")
    if rule.expires is not None:
        words.append(f"until {rule.expires:%Y-%m-%d %H:%M} UTC")
    if rule.log:
        words.append("logged")
    return words


def _cut(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_WORDS])
    return shown if len(words) <= _MOST_WORDS else f"{shown} and {len(words) - _MOST_WORDS} more"

"""Packets decided by rules with `log`, on their way to the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.policy.addresses import format_address, parse_address
from orchestrator.policy.fields import CARRIED, DOCUMENT_ORDER
from orchestrator.policy.model import Packet

MOST_AT_ONCE = 1000
"""So many go into one report."""

_NUMBERS = (*(field.name for field in DOCUMENT_ORDER if field in CARRIED), "dscp")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A packet, its place and time (microseconds since 1970, UTC), and its row's cookie.

    `length` is that of the whole packet on the link, in bytes.
    """

    host: str
    at: int
    cookie: int
    packet: Packet
    length: int


@dataclass(frozen=True, slots=True)
class Sightings:
    """A report: a growing number, the packets seen, and the number dropped since the last."""

    number: int
    seen: Sequence[Sighting]
    lost: int = 0


def packet_to_json(packet: Packet) -> dict[str, Any]:
    """A packet's fields; what is zero is left out."""
    source, destination = (format_address(packet.family, each) for each in (packet.source, packet.destination))
    found: dict[str, Any] = {"source": source, "destination": destination, "protocol": packet.protocol}
    found |= {name: value for name in _NUMBERS if (value := getattr(packet, name))}
    return found | ({"later_fragment": True} if packet.later_fragment else {})


def packet_from_json(fields: Mapping[str, Any]) -> Packet:
    """The packet that `packet_to_json` wrote."""
    (family, source), (_, destination) = parse_address(fields["source"]), parse_address(fields["destination"])
    numbers = {name: fields.get(name, 0) for name in _NUMBERS}
    later = fields.get("later_fragment", False)
    return Packet(family, source, destination, fields["protocol"], **numbers, later_fragment=later)


def to_json(report: Sightings) -> dict[str, Any]:
    """A report as it travels."""
    return {
        "number": report.number,
        "lost": report.lost,
        "seen": [
            {
                "host": each.host,
                "at": each.at,
                "cookie": f"{each.cookie:016x}",
                "octets": each.length,
                "packet": packet_to_json(each.packet),
            }
            for each in report.seen
        ],
    }

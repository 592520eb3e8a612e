"""Packets to show for a set of them: plain ones, that a reader has seen before, and only such as there are."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, TCP, UDP, WITH_PORTS
from orchestrator.policy.spans import Spans

OWN_ICMP = {Family.IPV4: ICMP, Family.IPV6: ICMPV6}
"""The ICMP that an IP version has; what bears the other's number has neither types nor codes."""

PLAIN_PROTOCOLS = (TCP, UDP, ICMP, ICMPV6)
PLAIN_FLAGS = (0x02, 0x10, 0x12, 0x04, 0x18)
PLAIN_ADDRESS = {Family.IPV4: 0xC0000201, Family.IPV6: 0x20010DB8 << 96 | 1}
PLAIN_SOURCE_PORT, PLAIN_PORT = 49152, 80
"""What witnesses have where a set leaves the choice; the addresses are for documentation."""


def plain(members: Spans, preferred: int) -> int:
    """The preferred member of a set if the set is large and has it, else the lowest."""
    return preferred if members[0].low == 0 and spans.holds(members, preferred) else members[0].low


def first_of(bits: int, preferred: Sequence[int] = ()) -> int:
    """A member of a non-empty bit set: the first of `preferred` that is in it, else the lowest."""
    for member in preferred:
        if bits >> member & 1:
            return member
    return (bits & -bits).bit_length() - 1


def possible(packet: Packet) -> Packet:
    """The packet with zeros in the fields that it does not have, as `Packet` wants it.

    IPv6 with protocol 44 becomes a later fragment, and an IPv6 later fragment gets protocol 44.
    """
    later, protocol = packet.later_fragment, packet.protocol
    if packet.family is Family.IPV6:
        later = later or protocol == IPV6_FRAGMENT
        protocol = IPV6_FRAGMENT if later else protocol
    ports = protocol in WITH_PORTS and not later
    icmp = protocol == OWN_ICMP[packet.family] and not later
    return Packet(
        family=packet.family,
        source=packet.source,
        destination=packet.destination,
        protocol=protocol,
        source_port=packet.source_port if ports else 0,
        destination_port=packet.destination_port if ports else 0,
        icmp_type=packet.icmp_type if icmp else 0,
        icmp_code=packet.icmp_code if icmp else 0,
        tcp_flags=packet.tcp_flags if protocol == TCP and not later else 0,
        later_fragment=later,
    )

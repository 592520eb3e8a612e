"""A packet, as a policy decides about it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.addresses import Family


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields of a packet that a policy can look at.

    `protocol` is the upper-layer protocol, found behind IPv6 extension headers; an IPv6 later fragment has
    IPV6_FRAGMENT (44), for its upper layer cannot be known. Ports, ICMP and flags are zero where there are none. `dscp`
    are the six bits of an IP header that say how it is treated.
    """

    family: Family
    source: int
    destination: int
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    tcp_flags: int = 0
    dscp: int = 0
    later_fragment: bool = False

"""Names of protocols and ICMP types in Aerleon, with the ICMP codes of each type."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.policy.protocols import ICMP, ICMPV6

PROTOCOLS: Mapping[str, int] = {
    "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipip": 4, "tcp": 6, "egp": 8, "igp": 9, "udp": 17, "rdp": 27,
    "ipv6": 41, "ipv6-route": 43, "fragment": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58,
    "ipv6-nonxt": 59, "ipv6-opts": 60, "ospf": 89, "pim": 103, "vrrp": 112, "l2tp": 115, "sctp": 132, "udplite": 136,
}  # fmt: skip
_ICMP = {
    "echo-reply": 0, "unreachable": 3, "source-quench": 4, "redirect": 5, "alternate-address": 6, "echo-request": 8,
    "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
    "timestamp-request": 13, "timestamp-reply": 14, "information-request": 15, "information-reply": 16,
    "mask-request": 17, "mask-reply": 18, "conversion-error": 31, "mobile-redirect": 32,
}  # fmt: skip
_ICMPV6 = {
    "destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4, "echo-request": 128,
    "echo-reply": 129, "multicast-listener-query": 130, "multicast-listener-report": 131,
    "multicast-listener-done": 132, "router-solicit": 133, "router-advertisement": 134, "neighbor-solicit": 135,
    "neighbor-advertisement": 136, "redirect-message": 137, "router-renumbering": 138,
    "icmp-node-information-query": 139, "icmp-node-information-response": 140,
    "inverse-neighbor-discovery-solicitation": 141, "inverse-neighbor-discovery-advertisement": 142,
    "version-2-multicast-listener-report": 143, "home-agent-address-discovery-request": 144,
    "home-agent-address-discovery-reply": 145, "mobile-prefix-solicitation": 146, "mobile-prefix-advertisement": 147,
    "certification-path-solicitation": 148, "certification-path-advertisement": 149,
    "multicast-router-advertisement": 151, "multicast-router-solicitation": 152, "multicast-router-termination": 153,
}  # fmt: skip
ICMP_TYPES: Mapping[int, Mapping[str, int]] = {ICMP: _ICMP, ICMPV6: _ICMPV6}
"""The types of each ICMP by name; numbers are not taken."""

ICMP_CODES: Mapping[str, frozenset[int]] = {
    "unreachable": frozenset(range(16)),
    "redirect": frozenset(range(4)),
    "router-advertisement": frozenset({0, 16}),
    "time-exceeded": frozenset(range(2)),
    "destination-unreachable": frozenset(range(8)),
    "parameter-problem": frozenset(range(4)),
    "router-renumbering": frozenset({0, 1, 255}),
    "icmp-node-information-query": frozenset(range(3)),
    "icmp-node-information-response": frozenset(range(3)),
}
"""The codes that may stand beside a type."""

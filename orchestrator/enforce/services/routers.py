"""Router advertisements (RFC 4861): the host is the router of its endpoints.

Addresses come by DHCPv6, names by the resolver. A prefix is announced for addresses of an endpoint's own making only
where what it makes of its MAC address is the address that it is to have: any other would not be let out of its port.
"""

from __future__ import annotations

import struct

from orchestrator.compile.pipelines.host import GATEWAY_MAC, SERVICES_IPV6
from orchestrator.compile.pipelines.services import SOLICITATION
from orchestrator.enforce.services.hostservices import ROUTER_IPV6, HostServices
from orchestrator.enforce.services.requestframes import Caller, Question, icmpv6_frame

LIFETIME_S = 1800
"""How long a router is believed; unasked advertisements come more often."""
_ADVERTISEMENT, _MANAGED_AND_OTHER, _ALL_NODES = 134, 0xC0, 0xFF02 << 112 | 1
_LINK_ADDRESS, _PREFIX, _MTU, _RESOLVERS = 1, 3, 5, 25
_AUTONOMOUS = 0x40


def answer(question: Question, services: HostServices) -> bytes | None:
    """Return the frame that answers a router solicitation from this link.

    None for anything else.
    """
    if question.destination != SOLICITATION or question.hops != 255 or question.payload[1:2] != b"\0":
        return None
    return advertisement(question.caller, services)


def advertisement(caller: Caller, services: HostServices) -> bytes:
    """Return the frame with an advertisement for one endpoint."""
    head = struct.pack("!BBHBBHII", _ADVERTISEMENT, 0, 0, 64, _MANAGED_AND_OTHER, LIFETIME_S, 0, 0)
    gateway = struct.pack("!BB6s", _LINK_ADDRESS, 1, GATEWAY_MAC.to_bytes(6, "big"))
    mtu = struct.pack("!BBHI", _MTU, 1, 0, services.mtu)
    resolvers = struct.pack("!BBHI16s", _RESOLVERS, 3, 0, LIFETIME_S, SERVICES_IPV6.to_bytes(16, "big"))
    own = _own_prefix(caller) if made_of_mac(caller.mac, caller.address) == caller.address else b""
    return icmpv6_frame(caller, (ROUTER_IPV6, _ALL_NODES), head + gateway + mtu + own + resolvers)


def made_of_mac(mac: int, address: int) -> int:
    """Return the address that a MAC address gives in another address's /64.

    RFC 4291, appendix A.
    """
    high, low = mac >> 24 ^ 0x020000, mac & 0xFFFFFF
    return address >> 64 << 64 | high << 40 | 0xFFFE << 24 | low


def _own_prefix(caller: Caller) -> bytes:
    network = (caller.address >> 64 << 64).to_bytes(16, "big")
    return struct.pack("!BBBBIII16s", _PREFIX, 4, 64, _AUTONOMOUS, 86400, 14400, 0, network)

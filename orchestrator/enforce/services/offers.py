"""The addresses that a switch offers, read back from its table `admission`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.compile.cookies import MARK
from orchestrator.enforce.services.requestframes import Caller
from orchestrator.policy.addresses import parse_address

_COOKIE = re.compile(r"\bcookie=0x([0-9a-f]+)")
_ASKS = re.compile(
    r"in_port=(?P<port>\d+),(?:.*,)?dl_src=(?P<mac>[0-9a-f:]{17}).* actions=.*"
    r"set_field:(?P<address>[0-9a-f.:]+)->(?:ip_dst|ipv6_dst)"
)
_OTHER_QUESTION = "udp6,"
"""Of IPv6 each endpoint has two rows, for DHCP and for a router; one of them is enough."""


def offers(lines: Iterable[str]) -> list[Caller]:
    """Return the endpoints that are offered an address, by port.

    `lines` are rows as `ovs-ofctl --no-names dump-flows` prints them. A row that aclflow did not write offers nothing.
    """
    found = []
    for line in lines:
        cookie, asks = _COOKIE.search(line), _ASKS.search(line)
        if cookie is None or asks is None or int(cookie[1], 16) >> 56 != MARK or _OTHER_QUESTION in line:
            continue
        family, address = parse_address(asks["address"])
        found.append(Caller(int(asks["port"]), int(asks["mac"].replace(":", ""), 16), family, address))
    return sorted(found, key=lambda each: (each.port, each.family.value))

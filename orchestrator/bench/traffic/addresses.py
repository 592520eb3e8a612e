"""The addresses, ports and tenants of a line with an enforcing firewall in its middle.

    10.0.0.170       one client
    10.1.0.0/24      a network that is shut out
    10.128.0.0/9     many clients of nobody's
    10.64.0.0/10     many clients, every other /16 of which belongs to a tenant whose endpoints are on other hosts
    10.32.0.0/11     the same, but those tenants have an endpoint each on this very switch
    198.18.0.0/16    the tenant's, in which the server is 198.18.29.40

Of a block, clients have the even addresses; endpoints have odd ones.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.model import Acl, Endpoint, Policy, Tenant, TenantId

CLIENT_MAC, NEXT_HOP_MAC, SERVER_MAC = GATEWAY_MAC, GATEWAY_MAC, 0x0AAC1F010001
"""A VNF-ACL sends what leaves by its uplink to the gateway's address, and takes from there what is for that address.

So both ends of the client's link have it: the client stands for the gateway, and so does the firewall's side.
"""

SERVER = Prefix.parse("198.18.29.40")
SERVER_ADDRESS = format_address(Family.IPV4, SERVER.network)
WEB, UNSERVED, THROUGHPUT, ECHO = 80, 81, 5201, 7
"""Ports of the server: HTTP, iperf3 and a UDP echo. Echoes come from `UNSERVED` too, which no list permits."""

TENANT = TenantId("shop")
OWNED = Prefix.parse("198.18.0.0/16")
EXCLUDED = Prefix.parse("10.1.0.0/24")
"""Clients whose packets the server does not get, whatever permits there are."""
EXCLUDED_ADDRESS = format_address(Family.IPV4, EXCLUDED.network)

_TENANT_NUMBER = 1
_STEP = 40_503
"""Odd, so that it goes round a whole block; and about 0.618 of 2^16, so that neighbours in time are far apart."""
NEIGHBOURS_PORTS = tuple(f"vm{index}" for index in range(16))
"""The neighbours' ports on the switch."""
_PORTS_ELSEWHERE = tuple(f"far{index}" for index in range(32))
_OTHER_LENGTH = 16


class Clients(enum.Enum):
    """The clients whose connections meet the firewall: source addresses are used in turn."""

    ONE = Prefix.parse("10.0.0.170")
    OUTSIDE = Prefix.parse("10.128.0.0/9")
    INSIDE = Prefix.parse("10.64.0.0/10")
    NEIGHBOURS = Prefix.parse("10.32.0.0/11")

    @property
    def address(self) -> str:
        """The first address."""
        return format_address(Family.IPV4, self.value.network)

    def addresses(self, how_many: int) -> tuple[str, ...]:
        """Return `how_many` addresses, in the order in which connections take them."""
        return in_turn(self.value, how_many)


def in_turn(block: Prefix, how_many: int) -> tuple[str, ...]:
    """Return the addresses of a block in the order that `_native/sources.c` uses them."""
    hosts = (1 << (32 - block.length)) - 1
    return tuple(format_address(Family.IPV4, block.network | (2 * _STEP * turn & hosts)) for turn in range(how_many))


def alone(acl: Acl) -> Policy:
    """The tenant's list and no other's: what a firewall of its own enforces."""
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Policy((Tenant(TENANT, _TENANT_NUMBER, (OWNED,), acl, numbers),))


def policy(acl: Acl, *, server_port: str) -> Policy:
    """The policy of the domain that a switch belongs to.

    `server_port` is the interface that leads to the server. Neighbours have endpoints on the same switch, so that where
    an answer to one of their block goes is a question of its whole address.
    """
    server = Endpoint("server", TENANT, server_port, SERVER_MAC, (SERVER,))
    others = (
        *_others(Clients.INSIDE, _PORTS_ELSEWHERE, 1),
        *_others(Clients.NEIGHBOURS, NEIGHBOURS_PORTS, 100),
    )
    tenants, endpoints = zip(*others, strict=True)
    return Policy((*alone(acl).tenants, *tenants), endpoints=(server, *endpoints))


def _others(clients: Clients, ports: Sequence[str], first: int) -> Iterator[tuple[Tenant, Endpoint]]:
    """Yield tenants for every other /16 of a clients' block, each with an endpoint there.

    They are numbered from the `first` after the server's tenant.
    """
    for index, port in enumerate(ports):
        owned = Prefix(Family.IPV4, clients.value.network + (2 * index << (32 - _OTHER_LENGTH)), _OTHER_LENGTH)
        tenant = Tenant(TenantId(f"{port}-tenant"), _TENANT_NUMBER + first + index, (owned,))
        address = Prefix(Family.IPV4, owned.network + 2 * index + 1, 32)
        yield tenant, Endpoint(port, tenant.id, port, SERVER_MAC + first + index, (address,))

"""Who owns what: tenants with chunks all over the IPv4 address space, their servers, lines that lead there. Pure.

Every tenant owns so many /16 blocks, drawn from a seed among those that a kernel routes. In its first block it has one
machine, which permits datagrams of one client to one port, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from orchestrator.edge.chunks import Allocation, Chunking, allocate
from orchestrator.edge.hashing import U64
from orchestrator.edge.lines import I64, Shape, build
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_address
from orchestrator.policy.model import Acl, Action, Endpoint, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.prefilter import Misdirect, Share
from orchestrator.policy.protocols import UDP

CLIENT = Prefix.parse("10.0.0.170")
"""The one client whom tenants permit; senders of everything else are in 10/8 too, which nobody owns."""
PERMITTED_PORT, ATTACKED_PORT = 7, 666

LENGTH = 16
CHUNKING = Chunking(Family.IPV4, LENGTH)
EVERY_CHUNK = np.arange(1 << LENGTH, dtype=np.uint64)
_HOST = 29 << 8 | 40
_MACHINE_MAC = 0x0AAC1F050000
_PRIVATE, _LOOPBACK, _LINK_LOCAL, _FIRST, _LAST = 10, 127, 169 << 8 | 254, 1, 223


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a world is: tenants with `chunks` each on `servers`, and lines of `per_line` chunks and k functions."""

    tenants: int = 16
    chunks: int = 64
    servers: int = 4
    per_line: int = 16
    functions: int = 8
    width: int = 288


class World:
    """Tenants, servers (numbered from 1) and lines. With `repaired`, no chunk reaches a wrong server; without, lines
    stand as they come and have no exceptions, so that some do."""

    def __init__(self, sizes: Sizes, seed: int, *, repaired: bool = True) -> None:
        self.sizes = sizes
        draw = random.Random(seed)  # noqa: S311  (no secret: the same world every time)
        drawn = draw.sample(ROUTABLE.tolist(), sizes.tenants * sizes.chunks)
        blocks = [drawn[index :: sizes.tenants] for index in range(sizes.tenants)]
        self.tenants = tuple(_tenant(number, keys) for number, keys in enumerate(blocks, 1))
        self.policy = Policy(self.tenants, endpoints=tuple(map(_endpoint, self.tenants)))
        self.server_of_tenant = {tenant.number: 1 + index % sizes.servers for index, tenant in enumerate(self.tenants)}
        bases = tuple(draw.sample(range(1 << 16), sizes.functions))
        self.lines = build(
            self.allocation.key,
            self.servers,
            [Shape(sizes.width, bases, sizes.per_line)],
            most_exceptions=len(drawn) if repaired else 0,
            allow_misdirected=not repaired,
        )

    @cached_property
    def allocation(self) -> Allocation:
        """Who has which chunks."""
        return allocate(CHUNKING, {tenant.number: tenant.prefixes for tenant in self.tenants})

    @cached_property
    def servers(self) -> I64:
        """The server of each chunk of the allocation."""
        tenants = np.array([group[0] for group in self.allocation.cohorts], np.int64)
        places = np.array([self.server_of_tenant[number] for number in tenants.tolist()], np.int64)
        return places[self.allocation.cohort]

    def right_server(self, keys: U64) -> I64:
        """The server that has the tenant of each chunk, 0 for nobody's."""
        found = np.zeros(1 << LENGTH, np.int64)
        found[self.allocation.key] = self.servers
        return found[keys]

    def share(self, server: int, misdirect: Misdirect) -> Share:
        """What one server holds."""
        mine = {tenant.id: self.server_of_tenant[tenant.number] for tenant in self.tenants}
        served = frozenset(tenant for tenant, number in mine.items() if number == server)
        return Share(served, {tenant: number for tenant, number in mine.items() if number != server}, misdirect)

    def leaks(self, keys: U64, misdirect: Misdirect) -> npt.NDArray[np.bool_]:
        """Of packets to these chunks which no rule permits, those that reach the WAN: what theory says."""
        if misdirect is not Misdirect.WAN:
            return np.zeros(len(keys), np.bool_)
        sent = self.lines.server_of(keys)
        return np.asarray((sent > 0) & (sent != self.right_server(keys)))


def _routable() -> U64:
    """The /16 blocks that a kernel forwards to."""
    first = EVERY_CHUNK >> np.uint64(8)
    good = (first >= _FIRST) & (first <= _LAST) & (first != _PRIVATE) & (first != _LOOPBACK)
    routed: U64 = EVERY_CHUNK[good & (EVERY_CHUNK != _LINK_LOCAL)]
    return routed


ROUTABLE = _routable()


def machine(tenant: Tenant) -> str:
    """The address of a tenant's one machine."""
    return format_address(Family.IPV4, tenant.prefixes[0].network + _HOST)


def addresses(keys: U64, hosts: Sequence[int] | None = None) -> list[int]:
    """An address in each chunk: by default that with the machines' host part."""
    return [
        (key << (32 - LENGTH)) + host for key, host in zip(keys.tolist(), hosts or [_HOST] * len(keys), strict=True)
    ]


def _endpoint(tenant: Tenant) -> Endpoint:
    """The tenant's machine as the policy knows it."""
    name = f"vm{tenant.number}"
    return Endpoint(name, tenant.id, name, _MACHINE_MAC + tenant.number, (Prefix.parse(machine(tenant)),))


def _tenant(number: int, keys: Sequence[int]) -> Tenant:
    prefixes = tuple(CHUNKING.prefix(key) for key in keys)
    host = Prefix(Family.IPV4, prefixes[0].network + _HOST, 32)
    rule = Rule(
        RuleId("client"),
        Action.PERMIT,
        protocol=UDP,
        source=Addresses((CLIENT,)),
        destination=Addresses((host,)),
        destination_ports=(PortRange(PERMITTED_PORT, PERMITTED_PORT),),
    )
    return Tenant(TenantId(f"tenant{number}"), number, prefixes, Acl((rule,)), {rule.id: 1})

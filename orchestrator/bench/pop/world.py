"""Worlds: blocks of an IP version, tenants with chunks, servers, and lines to them. Pure.

The grid has 65,536 blocks: every /16 of IPv4, or every /48 of 2001:db8::/32. A /48 is the longest chunk that the edge's
hash takes: it fills the field that is hashed. Senders are in blocks that nobody owns.

Every tenant owns so many blocks, drawn from a seed among those that a kernel routes. In its first block it has one
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

BLOCKS = 1 << 16
HOST = 29 << 8 | 40
"""The host part of machines, and of packets that are for a block and no host of its own."""
_PRIVATE, _LOOPBACK, _LINK_LOCAL, _FIRST, _LAST = 10, 127, 169 << 8 | 254, 1, 223


@dataclass(frozen=True)
class Grid:
    """Blocks of an IP version from chunk `first`, a permitted client, a foreign address."""

    chunking: Chunking
    first: int
    client: Prefix
    stranger: int

    @property
    def family(self) -> Family:
        return self.chunking.family

    @cached_property
    def every(self) -> U64:
        """The chunks of all blocks."""
        return np.arange(self.first, self.first + BLOCKS, dtype=np.uint64)

    @cached_property
    def routable(self) -> U64:
        """Those that a kernel forwards to."""
        if self.family is Family.IPV6:
            return self.every
        head = self.every >> np.uint64(8)
        good = (head >= _FIRST) & (head <= _LAST) & (head != _PRIVATE) & (head != _LOOPBACK)
        routed: U64 = self.every[good & (self.every != _LINK_LOCAL)]
        return routed

    @property
    def hosts(self) -> int:
        """How many addresses a block has."""
        return 1 << (self.family.bits - self.chunking.length)

    def addresses(self, keys: U64, hosts: Sequence[int] | None = None) -> list[int]:
        """An address in each chunk: by default that with the machines' host part."""
        parts = hosts or [HOST] * len(keys)
        return [key * self.hosts + part for key, part in zip(keys.tolist(), parts, strict=True)]


def _make_grid(space: str, length: int, client: str, stranger: str) -> Grid:
    space_, client_, stranger_ = map(Prefix.parse, (space, client, stranger))
    chunking = Chunking(space_.family, length)
    return Grid(chunking, chunking.key(space_.network), client_, stranger_.network)


def figure_prefix(grid: Grid) -> str:
    """Return the prefix of a grid's figure names: empty for IPv4."""
    return "" if grid.family is Family.IPV4 else f"ipv{grid.family.value}_"


IPV4 = _make_grid("0.0.0.0/0", 16, "10.0.0.170", "10.0.0.9")
IPV6 = _make_grid("2001:db8::/32", 48, "fd00::170", "fd00::9")


PERMITTED_PORT, ATTACKED_PORT = 7, 666
_MACHINE_MAC = 0x0AAC1F050000


@dataclass(frozen=True, slots=True)
class Sizes:
    """A world's size: tenants with `chunks` each on `servers`, lines of `per_line` chunks.

    k is the number of hash functions.
    """

    tenants: int = 16
    chunks: int = 64
    servers: int = 4
    per_line: int = 16
    functions: int = 8
    width: int = 288


class World:
    """Tenants, servers (numbered from 1) and lines.

    With `repaired`, no chunk reaches a wrong server; without, lines stand as they come and have no exceptions, so that
    some do.
    """

    def __init__(self, sizes: Sizes, seed: int, *, grid: Grid = IPV4, repaired: bool = True) -> None:
        self.sizes = sizes
        self.grid = grid
        draw = random.Random(seed)  # noqa: S311  (no secret: the same world every time)
        drawn = draw.sample(grid.routable.tolist(), sizes.tenants * sizes.chunks)
        blocks = [drawn[index :: sizes.tenants] for index in range(sizes.tenants)]
        self.tenants = tuple(_make_tenant(number, keys, grid) for number, keys in enumerate(blocks, 1))
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
        """Return the owners of chunks."""
        return allocate(self.grid.chunking, {tenant.number: tenant.prefixes for tenant in self.tenants})

    @cached_property
    def servers(self) -> I64:
        """The server of each chunk of the allocation."""
        tenants = np.array([group[0] for group in self.allocation.cohorts], np.int64)
        places = np.array([self.server_of_tenant[number] for number in tenants.tolist()], np.int64)
        return places[self.allocation.cohort]

    def right_server(self, keys: U64) -> I64:
        """The server that has the tenant of each chunk, 0 for nobody's."""
        first = np.uint64(self.grid.first)
        found = np.zeros(BLOCKS, np.int64)
        found[self.allocation.key - first] = self.servers
        right: I64 = found[keys - first]
        return right

    def share(self, server: int, misdirect: Misdirect) -> Share:
        """Return the share of one server."""
        mine = {tenant.id: self.server_of_tenant[tenant.number] for tenant in self.tenants}
        served = frozenset(tenant for tenant, number in mine.items() if number == server)
        return Share(served, {tenant: number for tenant, number in mine.items() if number != server}, misdirect)

    def leaks(self, keys: U64, misdirect: Misdirect) -> npt.NDArray[np.bool_]:
        """Return which forbidden packets reach the WAN by theory."""
        if misdirect is not Misdirect.WAN:
            return np.zeros(len(keys), np.bool_)
        sent = self.lines.server_of(keys)
        return np.asarray((sent > 0) & (sent != self.right_server(keys)))


def machine(tenant: Tenant) -> str:
    """The address of a tenant's one machine."""
    return format_address(tenant.prefixes[0].family, tenant.prefixes[0].network + HOST)


def _endpoint(tenant: Tenant) -> Endpoint:
    """The tenant's machine as the policy knows it."""
    name = f"vm{tenant.number}"
    return Endpoint(name, tenant.id, name, _MACHINE_MAC + tenant.number, (Prefix.parse(machine(tenant)),))


def _make_tenant(number: int, keys: Sequence[int], grid: Grid) -> Tenant:
    prefixes = tuple(grid.chunking.prefix(key) for key in keys)
    host = Prefix(grid.family, prefixes[0].network + HOST, grid.family.bits)
    rule = Rule(
        RuleId("client"),
        Action.PERMIT,
        protocol=UDP,
        source=Addresses((grid.client,)),
        destination=Addresses((host,)),
        destination_ports=(PortRange(PERMITTED_PORT, PERMITTED_PORT),),
    )
    return Tenant(TenantId(f"tenant{number}"), number, prefixes, Acl((rule,)), {rule.id: 1})

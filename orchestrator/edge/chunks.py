"""Cut tenants' prefixes into chunks: blocks of one size that a hash can tell apart.

A chunk is known by its key, the leading `length` bits of its addresses. A tenant has every chunk that one of its
prefixes meets; what it does not own of them is over-allocated: packets to it pass the edge and are dropped by the
tenant's firewall server. Tenants that meet in a chunk must have the same server, and so must those that meet them
elsewhere: they are one *cohort*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from orchestrator.edge.hashing import KEY_BITS
from orchestrator.errors import BadInput, BadPolicy, TooLarge
from orchestrator.placement.servers import Load, Server, place
from orchestrator.policy.addresses import Family, Prefix, aggregate

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

MOST_CHUNKS = 1 << 24


@dataclass(frozen=True, slots=True)
class Chunking:
    """The cut of addresses of one IP version: blocks share their leading `length` bits."""

    family: Family
    length: int

    def __post_init__(self) -> None:
        longest = min(self.family.bits, KEY_BITS)
        if not 1 <= self.length <= longest:
            reason = f"chunks of IPv{self.family.value} share 1 to {longest} leading bits, not {self.length}"
            raise BadInput(reason, place="length")

    def key(self, address: int) -> int:
        """The chunk of an address."""
        return address >> (self.family.bits - self.length)

    def prefix(self, key: int) -> Prefix:
        """The addresses of a chunk."""
        return Prefix(self.family, key << (self.family.bits - self.length), self.length)

    def span(self, prefix: Prefix) -> range:
        """The chunks that a prefix meets."""
        return range(self.key(prefix.network), self.key(prefix.last) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """Chunks and their tenants: `key` ascending and unique, each with the `cohort` of its tenants.

    `cohorts` are tenants' numbers, ascending within each. `over` is, for each tenant, how many addresses of its chunks
    are nobody's.
    """

    chunking: Chunking
    key: U64
    cohort: I64
    cohorts: tuple[tuple[int, ...], ...]
    over: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.key)

    @property
    def of_tenant(self) -> Mapping[int, int]:
        """Each tenant's cohort."""
        return {tenant: index for index, tenants in enumerate(self.cohorts) for tenant in tenants}


def allocate(chunking: Chunking, owned: Mapping[int, Sequence[Prefix]]) -> Allocation:
    """Cut tenants' prefixes, by tenant number, into chunks; skip prefixes of the other IP version.

    Raises BadPolicy where two tenants own the same address, TooLarge beyond 2^24 chunks.
    """
    mine = {
        tenant: aggregate(tuple(prefix for prefix in prefixes if prefix.family is chunking.family))
        for tenant, prefixes in sorted(owned.items())
    }
    _refuse_overlaps(mine)
    total = sum(len(chunking.span(prefix)) for prefixes in mine.values() for prefix in prefixes)
    if total > MOST_CHUNKS:
        raise TooLarge(f"{total} chunks of /{chunking.length}, over {MOST_CHUNKS}: take larger ones", place="length")
    met = _Met.of(chunking, mine)
    cohort_of, cohorts = _cohorts([tenant for tenant, prefixes in mine.items() if prefixes], met.together())
    begins = np.flatnonzero(met.begins)
    numbers, index = np.unique(met.tenant[begins], return_inverse=True)
    cohort = np.array([cohort_of[number] for number in numbers.tolist()], np.int64)[index]
    return Allocation(chunking, met.key[begins], cohort, cohorts, _over(chunking, mine, met))


@dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """Which tenants meet which chunks: rows of a `key` and a `tenant`, ascending, each once."""

    key: U64
    tenant: I64

    @classmethod
    def of(cls, chunking: Chunking, mine: Mapping[int, Sequence[Prefix]]) -> _Met:
        """Find the chunks that each tenant's prefixes meet."""
        spans = [(tenant, chunking.span(prefix)) for tenant, prefixes in mine.items() for prefix in prefixes]
        count = np.array([len(span) for _, span in spans], np.int64)
        first = np.array([span.start for _, span in spans], np.uint64)
        within = np.arange(count.sum(), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        key = np.repeat(first, count) + within.astype(np.uint64)
        tenant = np.repeat(np.array([each for each, _ in spans], np.int64), count)
        order = np.lexsort((tenant, key))
        key, tenant = key[order], tenant[order]
        once = np.ones(len(key), np.bool_)
        once[1:] = (key[1:] != key[:-1]) | (tenant[1:] != tenant[:-1])
        return cls(key[once], tenant[once])

    @property
    def begins(self) -> npt.NDArray[np.bool_]:
        """Whether a row is the first of its chunk."""
        found = np.ones(len(self.key), np.bool_)
        found[1:] = self.key[1:] != self.key[:-1]
        return found

    def together(self) -> Iterable[Sequence[int]]:
        """Pairs of tenants that share a chunk, enough of them to connect each cohort."""
        shared = np.flatnonzero(~self.begins)
        pairs = np.stack([self.tenant[shared - 1], self.tenant[shared]], axis=1)
        found: list[list[int]] = np.unique(pairs, axis=0).tolist()
        return found

    def tenants(self, key: int) -> list[int]:
        """List the tenants that meet a chunk."""
        low, high = (
            np.searchsorted(self.key, np.uint64(key), "left"),
            np.searchsorted(self.key, np.uint64(key), "right"),
        )
        found: list[int] = self.tenant[low:high].tolist()
        return found


def _refuse_overlaps(mine: Mapping[int, Sequence[Prefix]]) -> None:
    """Raise BadPolicy if two tenants own one address. Prefixes of one tenant are disjoint already."""
    before: tuple[int, Prefix] | None = None
    for prefix, tenant in sorted((prefix, tenant) for tenant, prefixes in mine.items() for prefix in prefixes):
        if before is not None and before[1].overlaps(prefix):
            raise BadPolicy(f"{prefix} of tenant {tenant} and {before[1]} of tenant {before[0]} overlap")
        before = tenant, prefix


def _cohorts(
    tenants: Sequence[int], together: Iterable[Sequence[int]]
) -> tuple[dict[int, int], tuple[tuple[int, ...], ...]]:
    """Tenants that share chunks, however indirectly, under one number (union and find)."""
    leader = {tenant: tenant for tenant in tenants}

    def find_root(tenant: int) -> int:
        while leader[tenant] != tenant:
            leader[tenant] = leader[leader[tenant]]
            tenant = leader[tenant]
        return tenant

    for group in together:
        first = find_root(group[0])
        for other in group[1:]:
            leader[find_root(other)] = first
    members: dict[int, list[int]] = {}
    for tenant in tenants:
        members.setdefault(find_root(tenant), []).append(tenant)
    cohorts = tuple(sorted(tuple(sorted(group)) for group in members.values()))
    return {tenant: index for index, group in enumerate(cohorts) for tenant in group}, cohorts


def _over(chunking: Chunking, mine: Mapping[int, Sequence[Prefix]], met: _Met) -> dict[int, int]:
    """Count, for each tenant, the addresses of its chunks that nobody owns.

    A prefix as large as a chunk leaves nothing of its chunks over.
    """
    size = 1 << (chunking.family.bits - chunking.length)
    used: dict[int, int] = {}
    for prefixes in mine.values():
        for prefix in prefixes:
            if prefix.length > chunking.length:
                key = chunking.key(prefix.network)
                used[key] = used.get(key, 0) + (1 << (prefix.family.bits - prefix.length))
    over = {tenant: 0 for tenant, prefixes in mine.items() if prefixes}
    for key, addresses in used.items():
        for tenant in met.tenants(key):
            over[tenant] += size - addresses
    return over


Places = Mapping[int, int]
"""The number of the server that serves each tenant, by the tenant's number."""


def groups(allocations: Iterable[Allocation]) -> tuple[tuple[int, ...], ...]:
    """Tenants that must have one server, by their numbers: ascending, groups by their lowest."""
    leader: dict[int, int] = {}

    def find_root(tenant: int) -> int:
        while leader[tenant] != tenant:
            leader[tenant] = leader[leader[tenant]]
            tenant = leader[tenant]
        return tenant

    for allocation in allocations:
        for cohort in allocation.cohorts:
            for tenant in cohort:
                leader.setdefault(tenant, tenant)
                one, other = sorted((find_root(cohort[0]), find_root(tenant)))
                leader[other] = one
    found: dict[int, list[int]] = {}
    for tenant in sorted(leader):
        found.setdefault(find_root(tenant), []).append(tenant)
    return tuple(tuple(found[first]) for first in sorted(found))


def settle_tenants(
    allocations: Sequence[Allocation],
    servers: Mapping[int, bool],
    before: Places,
    rules: Mapping[int, int],
    traffic: Mapping[int, float] = MappingProxyType({}),
) -> Places:
    """Place every tenant with addresses, as `before` where possible.

    A move costs two servers work.

    `servers` are those that there are, and whether they may get tenants: one that may not keeps what it has. `rules`
    counts each tenant's, `traffic` is its packets a second. Where nobody serves nobody is placed.
    """
    chunks = _chunks(allocations)
    kept: dict[int, int] = {}
    loads: dict[str, Load] = {}
    known: dict[str, str] = {}
    together = groups(allocations)
    for group in together:
        here = next((before[tenant] for tenant in group if before.get(tenant) in servers), None)
        if here is not None and not servers[here]:
            kept |= dict.fromkeys(group, here)
            continue
        key = str(group[0])
        loads[key] = Load(
            rules=sum(rules.get(tenant, 0) for tenant in group),
            traffic_pps=sum(traffic.get(tenant, 0.0) for tenant in group),
            chunks=sum(chunks.get(tenant, 0) for tenant in group),
        )
        if here is not None:
            known[key] = str(here)
    serving = [Server(str(number)) for number, may in sorted(servers.items()) if may]
    if not serving:
        return kept
    server_of = place(serving, loads, known).server_of
    for group in together:
        if str(group[0]) in server_of:
            kept |= dict.fromkeys(group, int(server_of[str(group[0])]))
    return kept


def servers_of(allocation: Allocation, places: Places) -> I64:
    """The server of each chunk; -1 for chunks of tenants that have no place."""
    of_cohort = np.array([places.get(tenants[0], -1) for tenants in allocation.cohorts], np.int64)
    return of_cohort[allocation.cohort] if len(allocation) else np.empty(0, np.int64)


def _chunks(allocations: Iterable[Allocation]) -> dict[int, int]:
    """How many chunks each tenant's cohort has, told of its first tenant alone."""
    found: dict[int, int] = {}
    for allocation in allocations:
        counts = np.bincount(allocation.cohort, minlength=len(allocation.cohorts)).tolist()
        for tenants, count in zip(allocation.cohorts, counts, strict=True):
            found[tenants[0]] = found.get(tenants[0], 0) + count
    return found

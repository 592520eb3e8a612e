"""Assign tenants to firewall servers; tenants that share a chunk share a server.

Tenants meet in chunks of either IP version, and through each other; all that meet, however indirectly, are one group,
and groups are what is placed (`placement/servers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from orchestrator.edge.chunks import Allocation
from orchestrator.edge.lines import I64
from orchestrator.placement.servers import Load, Server, place

Places = Mapping[int, int]
"""The number of the server that serves each tenant, by the tenant's number."""


def groups(allocations: Iterable[Allocation]) -> tuple[tuple[int, ...], ...]:
    """Tenants that must have one server, by their numbers: ascending, groups by their lowest."""
    leader: dict[int, int] = {}

    def find(tenant: int) -> int:
        while leader[tenant] != tenant:
            leader[tenant] = leader[leader[tenant]]
            tenant = leader[tenant]
        return tenant

    for allocation in allocations:
        for cohort in allocation.cohorts:
            for tenant in cohort:
                leader.setdefault(tenant, tenant)
                one, other = sorted((find(cohort[0]), find(tenant)))
                leader[other] = one
    found: dict[int, list[int]] = {}
    for tenant in sorted(leader):
        found.setdefault(find(tenant), []).append(tenant)
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

"""Compile a domain's policy for the planes of its firewall VNFs, as one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from orchestrator.compile.filters.cacherows import cache_table
from orchestrator.compile.filters.filterrows import CLOSED, FILTERS, filter_row
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.compile.filters.iptables import FORWARD, iptables_chains
from orchestrator.compile.filters.queuerows import queue_objects
from orchestrator.compile.nftables.script import nftables_objects
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.wire.firewalls import Plane


def filter_program(
    policy: Policy,
    planes: Iterable[Plane],
    *,
    domain: str,
    generation: int,
    lifted: Sequence[LiftedRule] = (),
    shared: Iterable[Flow] = (),
) -> Program:
    """Compile the firewall tier: the policy for each plane, and lifted rules for flow caches.

    `shared` are the lists of firewalls that share their connections (`clusterlists.cluster_rows`).

    Where connections are tracked there are no such rules, for a flow cache passes the filter by; and planes that cannot
    track take replies for what they look like.

    Raises what the compilers raise (TooLarge, BadPolicy, NotExpressible), with the place of the rule.
    """
    wanted = frozenset(planes)
    is_tracked = policy.return_traffic is ReturnTraffic.TRACKED
    untracked = without_connections(policy)
    filters = (
        row for plane in Plane if plane in wanted for row in _make_rows(policy if plane.tracks else untracked, plane)
    )
    rows = FlowTable.of((*filters, *shared))
    if lifted and not is_tracked:
        rows = FlowTable.join_tables([rows, cache_table(flow_cache(policy, lifted).rows)])
    return Program.of(domain, Tier.SERVER, generation, rows, ())


def without_connections(policy: Policy) -> Policy:
    """Return the policy for planes that do not track connections.

    There, replies come in by what they look like.
    """
    if policy.return_traffic is not ReturnTraffic.TRACKED:
        return policy
    return replace(policy, return_traffic=ReturnTraffic.ESTABLISHED)


def _make_rows(policy: Policy, plane: Plane) -> Iterator[Flow]:
    for family, objects in _compile_objects(policy, plane).items():
        for name, lines in objects.items():
            first = (CLOSED,) if name == FORWARD else ()
            yield filter_row(FILTERS[plane][family], name, "\n".join((*first, *lines)))


def _compile_objects(policy: Policy, plane: Plane) -> Mapping[Family, Mapping[str, tuple[str, ...]]]:
    return _COMPILERS[plane](policy)


_COMPILERS: Mapping[Plane, Callable[[Policy], Mapping[Family, Mapping[str, tuple[str, ...]]]]] = {
    Plane.NFTABLES: nftables_objects,
    Plane.IPTABLES: iptables_chains,
    Plane.QUEUE: queue_objects,
}

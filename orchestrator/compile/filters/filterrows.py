"""The program of a domain's firewall VNFs: filter objects as rows, key and text.

    key     table        which filter                      `Filter`
            match        the object's name, as the device calls it: ``chain ingress_7``, ``map senders``, ``FORWARD``,
                         ``ingress_7 rule 17``
    value   instructions the object's text: what stands inside its braces, or a chain's rules, one a line
            cookie       finds the object's row when it is read back; says nothing of what counts there

So it is a program like every other: its digest, its deltas, the way to an enforcement point, the copy on its disk and
the loop that compares and repairs are those of switches. A line's comment says which rule it counts for
(`comments.py`). A program holds the rows of every plane that some firewall of the domain has; a driver takes those of
its own filters.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.cacherows import cache_table
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.compile.filters.iptables import FORWARD, iptables_chains
from orchestrator.compile.filters.queuerows import queue_objects
from orchestrator.compile.nftables import nftables_objects
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier


class Plane(enum.Enum):
    """The packet filter of a firewall VNF."""

    NFTABLES = "nftables"
    IPTABLES = "iptables"
    QUEUE = "queue"
    """A classifier in user space, on a processor or a GPU."""

    @property
    def tracks(self) -> bool:
        """Whether it can track connections whose both directions it sees."""
        return self is not Plane.QUEUE

    @property
    def carries_stateless(self) -> bool:
        """Whether it carries stateless rules out where it tracks connections."""
        return self is Plane.NFTABLES


class Filter(enum.IntEnum):
    """Which filter a row is of: the `table` of its key."""

    NFT_IPV4 = 1
    NFT_IPV6 = 2
    IPTABLES = 3
    IP6TABLES = 4
    QUEUE_IPV4 = 12
    QUEUE_IPV6 = 13


FILTERS: Mapping[Plane, Mapping[Family, Filter]] = {
    Plane.NFTABLES: {Family.IPV4: Filter.NFT_IPV4, Family.IPV6: Filter.NFT_IPV6},
    Plane.IPTABLES: {Family.IPV4: Filter.IPTABLES, Family.IPV6: Filter.IP6TABLES},
    Plane.QUEUE: {Family.IPV4: Filter.QUEUE_IPV4, Family.IPV6: Filter.QUEUE_IPV6},
}

CLOSED = "policy DROP"
"""The first line of the kernel's own chain: what gets to its end is dropped."""

_COOKIE_BITS = 20
"""Names share cookies rarely, and blocks of a program (cookies with the same upper bits) hold several names."""
_OF_A_TENANT = re.compile(r"(?:(?:chain|map) )?(?:alone_|raw_)?(?:egress|ingress)_(\d+)(?:_| |\Z)")


def filter_program(
    policy: Policy, planes: Iterable[Plane], *, domain: str, generation: int, lifted: Sequence[LiftedRule] = ()
) -> Program:
    """Compile the firewall tier: the policy for each plane, and lifted rules for flow caches.

    Where connections are tracked there are no such rules, for a flow cache passes the filter by; and planes that cannot
    track take replies for what they look like.

    Raises what the compilers raise (TooLarge, BadPolicy, NotExpressible), with the place of the rule.
    """
    wanted = frozenset(planes)
    is_tracked = policy.return_traffic is ReturnTraffic.TRACKED
    untracked = without_connections(policy)
    rows = FlowTable.of(
        row for plane in Plane if plane in wanted for row in _rows(policy if plane.tracks else untracked, plane)
    )
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


def filter_row(of: Filter, name: str, text: str) -> Flow:
    """An object as a row."""
    tenant = _OF_A_TENANT.match(name)
    number = int.from_bytes(blake2b(f"{of} {name}".encode(), digest_size=8).digest(), "big") >> (64 - _COOKIE_BITS)
    cookie = Cookie(Tier.SERVER, Kind.STRUCTURE, number).pack()
    return Flow(of, 0, name.encode(), text.encode(), cookie, int(tenant[1]) if tenant else 0)


def _rows(policy: Policy, plane: Plane) -> Iterator[Flow]:
    for family, objects in _objects(policy, plane).items():
        for name, lines in objects.items():
            first = (CLOSED,) if name == FORWARD else ()
            yield filter_row(FILTERS[plane][family], name, "\n".join((*first, *lines)))


def _objects(policy: Policy, plane: Plane) -> Mapping[Family, Mapping[str, tuple[str, ...]]]:
    return _COMPILERS[plane](policy)


_COMPILERS: Mapping[Plane, Callable[[Policy], Mapping[Family, Mapping[str, tuple[str, ...]]]]] = {
    Plane.NFTABLES: nftables_objects,
    Plane.IPTABLES: iptables_chains,
    Plane.QUEUE: queue_objects,
}

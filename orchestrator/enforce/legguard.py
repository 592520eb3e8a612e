"""The nftables table that keeps a firewall's legs to their use: packets between them.

    input     by a leg     dropped, but for neighbour discovery (the machine's own services are reached by other ways)
    forward   by or to a leg, from or to what is none   dropped

It is the agent's own and says nothing of tenants, so it needs no program: it stands before forwarding is switched on,
beside whatever filters here. It is looked at again now and then, and written anew where somebody changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orchestrator.compile.filters.legs import GUARD_TABLE, Legs
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.guardtable import GuardTable, set_of_names


def leg_guard(legs: Legs, beside: Iterable[str] = (), *, run: Run = run) -> GuardTable:
    """The table of one network namespace; none where there are no legs.

    `beside` are interfaces that packets are forwarded to and from as well.
    """
    chains = tuple(_chains(legs, (*legs.names, *beside))) if legs.names else ()
    return GuardTable(GUARD_TABLE, chains, run)


def _chains(legs: Legs, among: tuple[str, ...]) -> Iterator[str]:
    own, all_ways = set_of_names(legs.names), set_of_names(among)
    yield from (
        "chain here {",
        "type filter hook input priority -10; policy accept;",
        f"iifname {own} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept",
        f"iifname {own} drop",
        "}",
        "chain across {",
        "type filter hook forward priority -10; policy accept;",
        f"iifname {own} oifname != {all_ways} drop",
        f"oifname {own} iifname != {all_ways} drop",
        "}",
    )

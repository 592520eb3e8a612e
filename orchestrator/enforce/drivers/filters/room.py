"""Packets that the kernel drops because it has no room to remember their connections.

A full table (`nf_conntrack_max`) drops what would open a connection before any filter sees it, and the connections that
are known go on. The kernel counts these packets for the network namespace; nothing in a filter's tables does.
"""

from __future__ import annotations

from orchestrator.compile.filters.filtertracking import OPENS
from orchestrator.enforce.drivers.filters.command import Run
from orchestrator.errors import Missing, Refused

STATISTICS = "/proc/net/stat/nf_conntrack"
"""A line of column names, and one of hexadecimal numbers for each processor."""
TRACKING_CHAINS = frozenset({OPENS, f"chain {OPENS}"})
"""The words of iptables and nftables that only filters which track connections have."""


def packets_without_room(run: Run) -> int:
    """Return how many packets were dropped so far; 0 where the kernel tracks nothing."""
    try:
        names, *processors = run(("cat", STATISTICS), "").splitlines()
    except (Refused, Missing):
        return 0
    place = names.split().index("drop")
    return sum(int(line.split()[place], 16) for line in processors)

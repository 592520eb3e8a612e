"""An access list's size in a ternary CAM, the classical measure of tenants and hardware.

An entry is a value and a mask over one key, so a rule needs one for each pair of a source and a destination prefix and
each pair of port blocks: a range of ports is cut into aligned blocks of powers of two (at most 30 for 16 bits). Nothing
that only a software switch can do is counted on: no conjunctive matches, no tuple spaces. Each direction ends with a
default in each IP version.

    key, bits   source + destination   protocol   ports or ICMP   TCP flags   fragment   tenant   direction
    IPv4  147        32 + 32               8         16 + 16           8          2         32        1
    IPv6  339       128 + 128              8         16 + 16           8          2         32        1

TCAMs are organised in slots of 160 bits, of which 1, 2 or 4 make a wider one: an IPv4 entry takes one, an IPv6 entry
four.
"""

from __future__ import annotations

from orchestrator.compile.openflow.encoder import flow_counts
from orchestrator.program.rules import RuleTable
from orchestrator.wire.costs import TcamCost

SLOTS_OF_IPV4 = 1
SLOTS_OF_IPV6 = 4
_DIRECTIONS = 2


def tcam_cost(rules: RuleTable) -> TcamCost:
    """The cost of a list's atoms, return traffic among them."""
    counts = flow_counts(rules)
    ipv6 = rules.family == 6
    return tcam_slots(int(counts[~ipv6].sum()) + _DIRECTIONS, int(counts[ipv6].sum()) + _DIRECTIONS)


def tcam_slots(ipv4_entries: int, ipv6_entries: int) -> TcamCost:
    """The cost of so many entries."""
    return TcamCost(ipv4_entries, ipv6_entries, ipv4_entries * SLOTS_OF_IPV4 + ipv6_entries * SLOTS_OF_IPV6)

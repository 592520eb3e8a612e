"""Compile a policy to one `nft -f` script that needs few look-ups per packet.

space.py    a list's rows as boxes of ranks
plan.py     maps, cuts and sequences: how a packet finds its rule
write.py    a plan as chains, maps and rules
script.py   all lists of a policy, dispatched by tenant: `nftables_script`, or object by object `nftables_objects`
"""

from orchestrator.compile.nftables.plan import row_by_row
from orchestrator.compile.nftables.script import nftables_objects, nftables_script

__all__ = ["nftables_objects", "nftables_script", "row_by_row"]

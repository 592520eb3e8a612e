"""nftables in plain Python: the kernel's tables of ours, and `nft` scripts.

tables.py    tables, chains, rules, maps and sets, read from nft's language
walk.py      a packet through the forward hook
nft.py       transactions, all of a script or nothing; `nft -f -` and `nft list table`: what the driver runs
"""

from orchestrator.enforce.drivers.nftables.fake.nft import FakeNft, ruleset
from orchestrator.enforce.drivers.nftables.fake.walk import Journey, Ruleset

__all__ = ["FakeNft", "Journey", "Ruleset", "ruleset"]

"""nftables rulesets as JSON (`nft -j list ruleset`, libnftables-json(5)), read and written.

Read in the order document (the objects), values and matchfields (the two sides of a match), matches, lines (one rule),
read (the whole; jumps are followed by `formats/chains`); write stands alone.
"""

"""A program: the flows, digest and delta that an enforcement point must hold.

Pure columns and bytes: the same program has the same digest wherever it is computed, and two programs differ by a delta
that turns one into the other.

flows.py, rules.py  rows as columns: flow entries, and the atoms that they are made from
canonical.py        rows as bytes that sort and compare
block.py            some rows in order, with their digest
blocks.py           the rows of a program in blocks, which rows share one, and their digest
program.py          a program; delta.py: what turns one into another; wire.py: both as bytes, and streams of them
counts.py           counts as columns, and how often enforcement points tell them
"""

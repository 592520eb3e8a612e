"""The cloud's edge: few TCAM lines send each packet to its firewall server. Pure.

hashing.py    the hash that Open vSwitch uses, for many chunks at a time
chunks.py     tenants' prefixes as blocks of one size, who owns which, and which firewall server serves whom
settings.py   how an edge is laid out, and the budgets of its TCAM
lines.py      ternary Bloom lines: built, ordered so that no chunk reaches a wrong server, and asked
upkeep.py     lines kept up as tenants come, go and move; what stands, in numbers
occupancy.py  how often a line, or any of many, matches what it does not hold, exactly
planner.py    what a cloud of any size costs, and what leaks; how much traffic few rules decide
suggest.py    chunk size and split that reach a target
sampling.py   the rates held against real lines
"""

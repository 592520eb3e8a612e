"""The cloud's edge: which firewall server a packet from outside meets, told by few lines of a TCAM. Pure.

hashing.py    the hash that Open vSwitch uses, for many chunks at a time
chunks.py     tenants' prefixes as blocks of one size, and who owns which
lines.py      ternary Bloom lines: built, ordered so that no chunk reaches a wrong server, and asked
occupancy.py  how full a line is, and how often it matches what it does not hold, exactly
planner.py    what a cloud of any size costs, and what leaks
"""

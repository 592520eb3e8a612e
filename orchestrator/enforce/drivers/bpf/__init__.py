"""A flow cache before a packet filter: a tc program that decides popular packets.

It runs before the kernel's IP stack.

    _native/    the program, in C, and what its maps hold
    libbpf.py   the few calls of libbpf that are needed, by ctypes
    layout.py   rows of a cache as the bytes of a map, and back
    kernel.py   the program in the kernel: found or loaded, attached, given a set of rows, read, its counters
    cachefront.py  the cache as the agent's loop sees it, and other deciders on the machine that it would bypass
    fake.py     the same in memory, for tests

docs/flow-cache.md has the design, what it leaves to the slow path, and what it costs.
"""

"""A host's routed uplink: an internal port of its switch that the kernel of the machine routes to.

    endpoint ── bridge ── up0 ┆ kernel of the host ── fabric ── the operator's router
                              ┆ routes, written here        a routing daemon announces them

rows.py     which endpoints the switch delivers to, read back from its table
wanted.py   what the kernel must hold for that, and the table of nftables around it. Pure
kernel.py   the port, its neighbours, routes and settings in this network namespace
keeper.py   the loop: read the switch, look at the kernel, set right what differs

Only what was read back from the switch gets a route, and only what has a route is announced.
"""

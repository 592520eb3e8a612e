"""A host's routed uplink: a port of its switch that the kernel routes to.

    endpoint ── bridge ── up0 ┆ kernel of the host ── fabric ── the operator's router
                              ┆ routes, written here        a routing daemon announces them

monitors.py      which endpoints the switch delivers to, read back from its table, and when that changes
arrivals.py      which of them have just come, or may be on their way
routeduplink.py  what the kernel must hold for that, and the table of nftables around it. Pure
uplinkkernel.py  the port, its neighbours, routes and settings in this network namespace
segment.py       the networks on which the kernel answers for endpoints, where nobody announces routes
uplinkkeeper.py  the loop: read the switch, look at the kernel, set right what differs

The port is an internal one. Only addresses that were read back from the switch get a route, and only those with a route
are announced.
"""

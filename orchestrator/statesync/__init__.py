"""State synchronisation: firewall VNFs share connection state, so that one may die.

    states.py      states, levels, what is shared, how long it lasts
    oracle.py      what becomes of a connection with each packet, in plain Python
    messages.py    what members tell each other, and its MAC

    _native/       the program in the kernel: watches, tells, holds, hears
    layout.py      its maps as bytes; kernel.py: loaded, attached, set, read
    status.py      its state over HTTP, for operators and Prometheus
    resending.py   what is held too long is sent again
    conntrackd.py  the other way: what conntrackd is told where the kernel tracks connections
    sessions.py    how one member proves itself to another; member.py: who follows whom, in bulk and then live

The program keeps to the oracle. docs/failover.md has the design, and which setting loses what.
"""

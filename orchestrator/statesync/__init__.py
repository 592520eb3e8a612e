"""State synchronisation: firewall VNFs that share the state of their connections, so that one may die.

    states.py      states, levels, what is shared, how long it lasts
    oracle.py      what becomes of a connection with each packet, in plain Python
    messages.py    what members tell each other; siphash.py: its MAC

The program in the kernel keeps to this oracle.
"""

"""Fleets of firewall VNFs sized to their load, each VNF taken step by step.

keeper.py     the loop: looks at the cloud and at the store, does what is due, notes what has come about
effects.py    what is asked of the cloud, what its errors mean, and what the cloud has that nobody owns
vnfinputs.py  what is known of a VNF, from what its agent, its cloud and the switch in front say; when to look next
sizing.py     how many there should be, from what they carried; who leaves
trials.py     the packets that a VNF is tried with before it gets traffic, and what is to become of them
gauges.py     what Prometheus is told
"""

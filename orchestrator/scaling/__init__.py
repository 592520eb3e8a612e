"""How many firewall VNFs a domain needs, and why. Pure: time and load are arguments.

capacity.py   what one VNF carries, by rules and packet size, fitted to measurements
decide.py     where a load is going; load, fleet, limits, history -> Decision(size, because)
buckets.py    whose the 256 parts of the traffic are, and how few change hands
lifecycle.py  the life of one VNF, from requested to gone, as a state machine
health.py     whether a VNF is well: sick at once, well again after a while of it
simulate.py   a load replayed against decide: size, capacity, loss over time
"""

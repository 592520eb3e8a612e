"""How many firewall VNFs a domain needs, and why. Pure: time and load are arguments.

capacity.py   what one VNF carries, by rules and packet size, fitted to measurements
forecast.py   where a load is going
decide.py     load, fleet, limits, history -> Decision(size, because)
simulate.py   a load replayed against decide: size, capacity, loss over time
"""

"""How what the service does grows with tenants, hosts and agents, with simulated enforcement points.

scaledomain.py a domain of any size in a process of its own, and what each kind of change costs there
domains.py     one rule of a domain while another is filled, on PostgreSQL
suite.py       worlds of two sizes in turns, and the ratios of their costs
"""

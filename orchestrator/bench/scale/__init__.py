"""How what the service does grows with tenants, hosts and agents, with simulated enforcement points.

scaledomain.py      a domain of any size in a process of its own, and what each kind of change costs there
listpages.py        pages and searches of such a domain's lists, hits and events, over HTTPS
domains.py          one rule of a domain while another is filled, on PostgreSQL
services.py         CPU time of changes with one and with two services, without HTTP
wholeservices.py    the same with processes of the product
kills.py            writes lost, and how soon they go on, where a service, a controller or connections are killed
serviceprocesses.py services as processes, and points that follow them
suite.py            worlds of two sizes in turns, the ratios of their costs, and all else
"""

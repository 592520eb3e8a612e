"""Suite firewall-server: what many permitted pairs cost a server (Scalable Firewalls, section 5.2, figures 11-15).

Hash sets of 1,000 to 8.7 million pairs, written as the agent writes them; beside them an interval set, which is linear,
and what the paper calls the status quo: an IPsec tunnel between two gateways.
"""

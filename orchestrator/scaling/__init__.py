"""How many firewall VNFs a domain needs, and why.

Nothing lives here yet: the package keeps its place in the import order.
"""

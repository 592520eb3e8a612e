"""Connection state shared between stateful firewalls, so that a failover cuts nothing.

Nothing lives here yet: the package keeps its place in the import order.
"""

"""Which rule earns which tier: popularity, and moving a rule without changing what the list means.

Nothing lives here yet: the package keeps its place in the import order.
"""

"""The cloud's edge: chunks of addresses, Bloom-filter lines, the planner for TCAM budgets.

Nothing lives here yet: the package keeps its place in the import order.
"""

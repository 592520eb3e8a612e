"""Parallel packet classifiers, and replaying traffic against a policy.

Nothing lives here yet: the package keeps its place in the import order.
"""

"""Where VNFs run: network namespaces here, OpenStack elsewhere.

Nothing lives here yet: the package keeps its place in the import order.
"""

"""Suite attack: what floods of a point of presence do to its WAN and to everybody else, under each misdirect mode.

Traffic goes between namespaces that the suite made, and every flood ends by itself.
"""

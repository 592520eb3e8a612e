"""Suite attack: floods of a point of presence, under each misdirect mode.

It measures the WAN's load and what other tenants see.

Traffic goes between namespaces that the suite made, and every flood ends by itself.
"""

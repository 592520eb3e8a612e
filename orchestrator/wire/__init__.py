"""The documents that cross the wire: one frozen dataclass each, for service, store, client and enforcement points.

A module per area of the REST interface holds the documents that the service sends. `codec.py` writes them as JSON and
reads them again. What the service only takes in is declared in `api/schemas`, where it is checked. Nothing here holds
a secret or a digest of the store, but those that a caller is given once.
"""

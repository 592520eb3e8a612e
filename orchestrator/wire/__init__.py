"""The documents that cross the wire, each as one frozen dataclass.

Service, store, client and enforcement points share them. A module per area of the REST interface holds the documents
that the service sends. `codec.py` writes them as JSON and reads them again. Documents that the service only takes in
are declared and checked in `api/schemas`. Nothing here holds a secret or a digest of the store, but those that a caller
is given once.
"""

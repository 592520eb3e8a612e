"""A client, a server and a cluster of firewalls between them, in network namespaces, for tests and measurements."""

"""A client, a server and a firewall cluster in namespaces, for tests and measurements."""

"""The programs of firewall servers: exact pairs in hash sets, whole lists as bit vectors."""

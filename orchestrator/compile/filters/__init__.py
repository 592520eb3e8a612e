"""A policy for packet filters: iptables, the rows of a firewall's program, the flow cache in front of it."""

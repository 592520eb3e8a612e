"""Compile a policy for packet filters: iptables, a firewall's rows, its flow cache."""

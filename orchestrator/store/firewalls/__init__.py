"""Firewall VNFs: machines, fleets, capacities, and how traffic is spread over them."""

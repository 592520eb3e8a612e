"""Firewall VNFs: machines that filter, fleets of them, what one carries, and how traffic is spread over them."""

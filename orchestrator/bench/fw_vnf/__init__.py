"""Suite fw-vnf: capacity of firewall VNFs by rules and packet size.

The FW-VNF paper's figures 1 to 4, the capacity model that comes of it, and what several of them carry behind a spread
switch.
"""

"""The suite `fw-vnf`: what one firewall VNF carries, by rules and packet size (the FW-VNF paper's figures 1 to 4), the
capacity model that comes of it, and what several of them carry behind a spreading switch."""

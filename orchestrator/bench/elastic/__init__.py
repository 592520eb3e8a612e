"""Suite elastic: a fleet of firewall VNFs follows its load, and the cost to traffic."""

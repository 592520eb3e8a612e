"""What control does for points of presence: edges' programs, heavy hitters, the manager of firewall servers."""

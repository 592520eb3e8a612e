"""Control of points of presence: edges' programs, heavy hitters, firewall servers."""

"""Points of presence: edge switches, the firewall servers behind them, lines, and where packets went."""

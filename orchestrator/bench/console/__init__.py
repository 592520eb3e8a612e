"""Suite console: pages of 20,000 rules in a browser, and twenty open dashboards."""

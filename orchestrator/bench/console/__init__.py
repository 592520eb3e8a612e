"""Suite console: pages of a list of 20,000 rules in a browser, and twenty open dashboards."""

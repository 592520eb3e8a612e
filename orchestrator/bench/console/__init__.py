"""What the web console costs: pages of a list of 20,000 rules in a real browser, and twenty dashboards left open."""

"""Suite edge: what the planner says of a point of presence, and what real switches and servers do (Scalable Firewalls,
figures 7-10, section 5.1)."""

"""Suite edge: the planner's figures, and real switches and servers.

Scalable Firewalls, figures 7-10, section 5.1.
"""

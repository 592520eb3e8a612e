"""A real OpenStack on this machine, for tests: Keystone, Glance, Placement, Neutron, Nova and Heat, all on loopback.

Nothing is imitated but what would need hardware: Nova's `fake` driver keeps virtual machines that exist in its memory
only, and Neutron binds every port at once, without an agent. Everything else is what Debian ships: the schemas, the
tokens and trusts, the scheduler, the quotas, Heat's engine.

place.py      the directory, the ports, the URLs
configs.py    the files in etc/, filled in
programs.py   what is started, in which order, and by which port it is known to be there
running.py    starting, asking and stopping by process id
schemas.py    databases and what they begin with
contents.py   users, endpoints, and then an image, a flavor and networks to work with
stack.py      all of it: begin, stop, and one service stopped and started again
"""

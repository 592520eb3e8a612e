"""Suite qualify: real traffic between given machines through a deployed domain, against limits.

inventory.py  who sends and who answers, of an inventory of Ansible's
pairgauges.py iperf3 and httperf from a client to a server over SSH, a port that must stay silent; what each must reach
suite.py      rounds over all pairs of machines, and the report as one file that needs nothing beside it
"""

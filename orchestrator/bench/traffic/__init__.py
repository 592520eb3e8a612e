"""Traffic through a packet filter between namespaces, by httperf, iperf3 and netcat.

A `Line` is a client, a firewall in the middle and a server. In the middle is a kernel that routes, with or without a
packet filter (`filters`), or Open vSwitch with a compiled program, a VNF-ACL (`vnf`). The tools drive the line
(`httperf`, `iperf`, `netcat`), `rules` makes the lists that both kinds enforce, and `addresses` says who is who.
"""

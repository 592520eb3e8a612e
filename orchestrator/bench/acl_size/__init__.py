"""Suite acl-size: what the number of rules does to traffic (ACLFLOW, figure 4).

The same lists, from 250 to 20,000 rules, in a linear packet filter with the deciding rule first, in the middle or
last, in nftables' maps, and in a VNF-ACL. httperf makes requests, iperf3 packets, and netcat round trips.
"""

"""Suite promotion: what it brings to lift the popular rule (ACLFLOW, figure 5).

The same lists in a VNF-ACL with and without the traffic's rules lifted, and in iptables with those rules first; one
client and many, also clients whose addresses belong to other tenants; and lists in which lifting cannot help, for they
look at no source. Besides: how long one lift takes, and popular rules in front of a packet filter's list (tc-BPF).
"""

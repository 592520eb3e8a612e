"""Suite cloud: aclflow beside Neutron's Open vSwitch firewall, on a compute host of OpenStack.

       near ─ tap… ┐                      ┌ tap… ─ near
                   ├ br-aclflow    br-int ┤             one switch daemon, the same kind of cable, no instance between
        far ─ tap… ┘                      └ tap… ─ far
       REST ─▶ aclflow            Neutron's API ─▶ ML2/OVS, security groups

cloudsite.py  the file that says where the cloud is
plugs.py      namespaces that are plugged as os-vif plugs an instance, and datagrams between them
sides.py      both firewalls behind one interface: rules, connections, packets, boots
suite.py      rounds of both in turns, and their ratios
"""

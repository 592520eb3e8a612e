"""A cloud on this machine in which instances run: OpenStack, two compute hosts, a plain router, and aclflow.

       root namespace: Keystone, Glance, Placement, Neutron, Nova, Heat; aclflow's service, controller and console
          │ management, 169.254.79.0/24
     ┌────┴─────────────────────────────┐
     one  instances ─ br-aclflow ─ up0 ─ kernel ── leg1 ┐
     two  instances ─ br-aclflow ─ up0 ─ kernel ── leg2 ┴ router (BIRD) ── outside, 203.0.113.0/24

Each compute host has namespaces of its own (network, mounts, host name) with its own `/run`, libvirtd, Open vSwitch
and nova-compute; instances run in QEMU without hardware support. The router is Linux with BIRD and knows nothing of
aclflow.

addresses.py  who has which address
network.py    namespaces, links, the router and the outside
hosts.py      a compute host, and what an operator runs on it
control.py    aclflow's service, controller and console
image.py      the kernel and the first disk of instances
projects.py   two projects, each with a network, and their instances
terminal.py   the keyboard and screen of an instance
cloud.py      all of it: begin and end
beside.py     ML2/OVS beside aclflow, as `aclflow bench cloud` measures both
"""

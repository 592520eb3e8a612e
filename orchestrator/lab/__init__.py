"""A point of presence on this machine: endpoints, hosts with Open vSwitch, an edge, clients.

Everything lives in network namespaces of its own under one name prefix, so that several labs and the machine's own
switches do not meet, and so that whatever a killed lab left behind can be found and removed by that prefix. Read
`spec` (what a lab consists of), `layout` (what things are called), `pop` (up, down, status), `wire` (crafted packets),
`sockets` (real connections), `demo`.
"""

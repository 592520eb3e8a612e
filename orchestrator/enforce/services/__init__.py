"""Services that endpoints need to come up, answered by their host.

They are DHCP, DHCPv6, router advertisements and DNS.

    endpoint ── bridge ── svc0 ┆ answerer: frames in, frames out       addresses, routers, the resolver's address
                               ┆ kernel ── dnsmasq                     names

hostservices.py  what an operator declares: subnets, the resolver, and the tables of nftables around the port
requestframes.py a question as the switch hands it over, and the frame that brings an answer. Pure
dhcp.py          DHCPv4: one message, its answer. Pure
dhcpv6.py        the same for DHCPv6. Pure
routers.py       router advertisements. Pure
answerer.py      reads frames from the port, and answers
serviceport.py   the port, its addresses, routes and settings in this network namespace
servicekeeper.py the loop: set right what differs; dnsmasq as a process of ours; addresses that the switch offers

The rows of `compile/pipelines/services.py` say who asks and which address is theirs, so no lease is kept anywhere.
"""

"""A point of presence to measure: edge switch, firewall servers, WAN.

Programs come from our compilers and are written by our drivers, as the controller and the agents do it, without a
service in between. `world` says who owns what, `links` makes the namespaces, `edge` puts programs into them,
`shots` sends single packets without losing one, and `flood` sends many. At the WAN's end `links` counts what arrives.
"""

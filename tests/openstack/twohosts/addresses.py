"""Who has which address."""

from __future__ import annotations

from orchestrator.lab.fabric import Leg

PREFIX = "cld-"
"""Begins the names of namespaces; the management bridge is called after it, too."""
DOMAIN = "cloud"
HOSTS = {"one": 1, "two": 2}
"""Compute hosts, by the name that Nova, Neutron and aclflow have for each."""
ROUTER, OUTSIDE, SPREAD = "router", "outside", "spread"
MANAGEMENT = "169.254.79.1"
"""Of this machine: services listen here for compute hosts."""
MANAGEMENT_LENGTH = 24
RANGES = ("198.51.100.0/24", "2001:db8:79::/48")
"""What instances may have."""
PROJECTS = {"blue": "198.51.100.0/26", "red": "198.51.100.64/26"}
PROJECTS6 = {"blue": "2001:db8:79:1::/64", "red": "2001:db8:79:2::/64"}
"""Projects, each with the IPv4 and the IPv6 prefix of its network."""
ROUTER_OUTSIDE, OUTSIDE_ADDRESS, OUTSIDE_LENGTH = "203.0.113.1", "203.0.113.2", 24
ROUTER_OUTSIDE6, OUTSIDE_ADDRESS6, OUTSIDE_LENGTH6 = "2001:db8:ff::1", "2001:db8:ff::2", 64
SEGMENT_ROUTER, SEGMENT_LENGTH = "198.51.100.129", 25
"""Of a segment that the operator has beside the legs to hosts: VNF-ACLs stand on it, and have these addresses."""
SEGMENT_SWITCHES = ("198.51.100.130", "198.51.100.139")
SEGMENT_MACHINES = "198.51.100.192/26"
"""What machines behind VNF-ACLs have of the segment's addresses."""
SIDES = ("left", "right")
FLAT = {name: f"br-{name}" for name in ("management", "segment", *SIDES)}
"""Links of a compute host that ML2/OVS' flat networks use, with the bridge of each."""
SPREAD_MANAGEMENT = "169.254.79.13"
TO_SPREAD, FROM_SPREAD = Leg.nth_leg(3), Leg.nth_leg(4)
"""The router's links to the machine of a spreading switch: towards its outside, and towards its inside."""
OPENFLOW_PORT = 6653


def management_of(host: str) -> str:
    """A compute host's address in the management network."""
    return f"169.254.79.{10 + HOSTS[host]}"


def leg_of(host: str) -> Leg:
    """The router's link to a compute host."""
    return Leg.nth_leg(HOSTS[host])

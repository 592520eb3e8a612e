"""Namespaces and links of the cloud, and what runs outside of it: a plain router, and somebody beyond it."""

from __future__ import annotations

import subprocess
from functools import partial

from orchestrator.errors import Conflict
from orchestrator.lab import namespaces
from orchestrator.lab.fabric import HOST_LEG
from orchestrator.lab.network import QUIET_IPV6
from twohosts.addresses import (
    FROM_SPREAD,
    HOSTS,
    MANAGEMENT,
    MANAGEMENT_LENGTH,
    OUTSIDE,
    OUTSIDE_ADDRESS,
    OUTSIDE_ADDRESS6,
    OUTSIDE_LENGTH,
    OUTSIDE_LENGTH6,
    RANGES,
    ROUTER,
    ROUTER_OUTSIDE,
    ROUTER_OUTSIDE6,
    SEGMENT_LENGTH,
    SEGMENT_ROUTER,
    SIDES,
    SPREAD,
    SPREAD_MANAGEMENT,
    TO_SPREAD,
    leg_of,
    management_of,
)

_SEGMENT = "segment"
NODES = (ROUTER, OUTSIDE, SPREAD, *HOSTS)
_FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
_QUIET = {f"net/ipv6/conf/default/{name}": value for name, value in {**QUIET_IPV6, "keep_addr_on_down": "1"}.items()}
"""For interfaces that are made later; a link that goes down and up keeps its addresses."""
_GUARD = """table inet guard {{
  chain input {{ type filter hook input priority filter; policy accept;
    ip saddr {four} drop
    ip6 saddr {six} drop
  }}
}}"""
"""The router keeps instances away from itself: hosts can guard only what is their own."""


def create(prefix: str) -> None:
    """Make every namespace and link, and give them addresses. Raises Conflict where a cloud is up."""
    if namespaces.with_prefix(prefix):
        raise Conflict(
            f"namespaces {prefix}... are there: end the cloud of their directory (python -m twohosts end DIRECTORY)"
        )
    try:
        _create(prefix)
    except BaseException:
        remove(prefix)
        raise


def _create(prefix: str) -> None:
    for node in NODES:
        namespaces.create(prefix + node)
        namespaces.inside(prefix + node, partial(namespaces.set_kernel, _QUIET))
        _ip("-n", prefix + node, "link", "set", "lo", "up")
    bridge = bridge_of(prefix)
    _ip("link", "add", bridge, "type", "bridge")
    _ip("address", "add", f"{MANAGEMENT}/{MANAGEMENT_LENGTH}", "dev", bridge)
    _ip("link", "set", bridge, "up")
    _ip("-n", prefix + ROUTER, "link", "add", _SEGMENT, "type", "bridge")
    _up(prefix + ROUTER, _SEGMENT, f"{SEGMENT_ROUTER}/{SEGMENT_LENGTH}")
    _create_spread(prefix)
    for host, number in HOSTS.items():
        namespace, port = prefix + host, f"{bridge}{number}"
        _ip("link", "add", port, "type", "veth", "peer", "name", "mgmt", "netns", namespace)
        _ip("link", "set", port, "master", bridge, "up")
        _up(namespace, "mgmt", f"{management_of(host)}/{MANAGEMENT_LENGTH}")
        leg = leg_of(host)
        _ip("-n", prefix + ROUTER, "link", "add", leg.name, "type", "veth", "peer", "name", HOST_LEG,
            "netns", namespace)  # fmt: skip
        _up(prefix + ROUTER, leg.name, f"{leg.router[0]}/30", f"{leg.router[1]}/64")
        _up(namespace, HOST_LEG, f"{leg.host[0]}/30", f"{leg.host[1]}/64")
        _create_flat(prefix, host, number)
    _create_outside(prefix)


def _create_flat(prefix: str, host: str, number: int) -> None:
    """Give a host the links of the flat networks that ML2/OVS serves there, where its agent runs."""
    bridge, router, spread = bridge_of(prefix), ("-n", prefix + ROUTER), ("-n", prefix + SPREAD)
    for place, name, master, link in (
        ((), f"{bridge}v{number}", bridge, "management"),
        (router, f"{_SEGMENT}{number}", _SEGMENT, _SEGMENT),
        *((spread, f"{side}{number}", side, side) for side in SIDES),
    ):
        _ip(*place, "link", "add", name, "type", "veth", "peer", "name", link, "netns", prefix + host)
        _ip(*place, "link", "set", name, "master", master, "up")
        _ip("-n", prefix + host, "link", "set", link, "up")


def _create_spread(prefix: str) -> None:
    """Make the machine of a spreading switch: links to the router, and networks with firewalls on either side."""
    bridge, spread = bridge_of(prefix), prefix + SPREAD
    _ip("link", "add", f"{bridge}s", "type", "veth", "peer", "name", "mgmt", "netns", spread)
    _ip("link", "set", f"{bridge}s", "master", bridge, "up")
    _up(spread, "mgmt", f"{SPREAD_MANAGEMENT}/{MANAGEMENT_LENGTH}")
    for name, leg in (("eth-out", TO_SPREAD), ("eth-in", FROM_SPREAD)):
        _ip("-n", prefix + ROUTER, "link", "add", leg.name, "type", "veth", "peer", "name", name, "netns", spread)
        _up(prefix + ROUTER, leg.name, f"{leg.router[0]}/30", f"{leg.router[1]}/64")
        _up(spread, name, f"{leg.host[0]}/30", f"{leg.host[1]}/64")
    for side in SIDES:
        _ip("-n", spread, "link", "add", side, "type", "bridge")
        _ip("-n", spread, "link", "set", side, "up")
        _ip("-n", spread, "link", "add", f"sw-{side}", "type", "veth", "peer", "name", f"lan-{side}")
        _ip("-n", spread, "link", "set", f"lan-{side}", "master", side, "up")
        _ip("-n", spread, "link", "set", f"sw-{side}", "up")


def _create_outside(prefix: str) -> None:
    router, outside = prefix + ROUTER, prefix + OUTSIDE
    _ip("-n", router, "link", "add", OUTSIDE, "type", "veth", "peer", "name", "eth0", "netns", outside)
    _up(router, OUTSIDE, f"{ROUTER_OUTSIDE}/{OUTSIDE_LENGTH}", f"{ROUTER_OUTSIDE6}/{OUTSIDE_LENGTH6}")
    _up(outside, "eth0", f"{OUTSIDE_ADDRESS}/{OUTSIDE_LENGTH}", f"{OUTSIDE_ADDRESS6}/{OUTSIDE_LENGTH6}")
    for family, gateway in (("-4", ROUTER_OUTSIDE), ("-6", ROUTER_OUTSIDE6)):
        _ip(family, "-n", outside, "route", "add", "default", "via", gateway)
    namespaces.inside(router, partial(namespaces.set_kernel, _FORWARDING))
    guard = _GUARD.format(four=RANGES[0], six=RANGES[1])
    namespaces.inside(router, lambda: subprocess.run(("nft", "-f", "-"), input=guard, text=True, check=True))


def remove(prefix: str) -> None:
    """Remove every link and namespace; what is not there is no error."""
    subprocess.run(("ip", "link", "delete", bridge_of(prefix)), capture_output=True, check=False)
    for node in NODES:
        namespaces.remove(prefix + node)


def bridge_of(prefix: str) -> str:
    """The bridge of the management network, in the root namespace."""
    return f"{prefix.rstrip('-')}mgmt"


def _up(namespace: str, interface: str, *addresses: str) -> None:
    for address in addresses:
        _ip("-n", namespace, "address", "add", address, "dev", interface)
    _ip("-n", namespace, "link", "set", interface, "up")


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)

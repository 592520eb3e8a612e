"""Whether a cloud vouches for a machine that says it is one of a group: the second half of a group token's proof.

The token is in the user data of every member of the group, and user data leaks. So a machine is only admitted as an
instance that its cloud has in the group just now, and only from an address that the cloud gave to that instance: what
an attacker would need beside the token is that instance's own place in the network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from orchestrator.cloud.base import Cloud, VnfState

CloudOf = Callable[[str], Cloud | None]
"""The cloud of a domain; None where it has none."""

_THERE = frozenset({VnfState.COMING, VnfState.RUNNING})


def vouched(cloud: Cloud, group: str, instance: str, address: str) -> str | None:
    """What the machine is called that is this instance of a group and has this address; None: there is no such.

    Raises what the cloud raises.
    """
    wanted = _plain(address)
    if wanted is None:
        return None
    for vnf in cloud.list(group):
        known = {_plain(each) for each in vnf.addresses}
        if vnf.instance_id == instance and vnf.state in _THERE and wanted in known:
            return vnf.name
    return None


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address as a value: an IPv4 address that was written as an IPv6 one is the same."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if found.version == 6 else None
    return mapped or found

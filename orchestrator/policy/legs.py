"""Shared legs: ports of a switch behind which several endpoints live.

A port leads to one endpoint unless each of its endpoints says that it is `shared`. Then all of them are of one tenant,
so that the port tells whose packets they are, and the MAC address with the source address tells which endpoint's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.policy.addresses import Prefix, aggregate
from orchestrator.policy.model import Endpoint


@dataclass(frozen=True, slots=True)
class Clash:
    """The field of an endpoint that contradicts another endpoint of its port, and why."""

    field: str
    reason: str


def find_clash(endpoint: Endpoint, others: Mapping[int, Endpoint]) -> Clash | None:
    """Return why an endpoint cannot share its port with others; None where it can.

    `others` are by MAC address. They agree with each other, so one of them speaks for all.
    """
    if not others:
        return None
    other = next(iter(others.values()))
    if not (endpoint.shared and other.shared):
        both = ": each must be declared shared" if endpoint.shared or other.shared else ""
        return Clash("port", f"endpoint '{other.name}' has port '{endpoint.port}' already{both}")
    if other.tenant != endpoint.tenant:
        return Clash("tenant", f"the endpoints of the shared port '{endpoint.port}' are of '{other.tenant}'")
    same = others.get(endpoint.mac)
    return None if same is None else Clash("mac", f"endpoint '{same.name}' has this MAC address at the same port")


def find_wide_prefix(endpoint: Endpoint) -> int | None:
    """Return the place of a prefix of several addresses, which shared legs refuse."""
    places = (index for index, each in enumerate(endpoint.prefixes) if each.length < each.family.bits)
    return next(places, None) if endpoint.shared else None


def matched_prefixes(endpoint: Endpoint) -> tuple[Prefix, ...]:
    """Return the prefixes that rows name.

    They are as few as possible, but on a shared leg each address is one: there questions about it are left to the
    endpoint itself.
    """
    return tuple(sorted(set(endpoint.prefixes))) if endpoint.shared else aggregate(endpoint.prefixes)

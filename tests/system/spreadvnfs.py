"""Plain firewalls behind a lab's spreading switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.client.spread import Carrier, Link
from orchestrator.lab import bridges
from orchestrator.lab.forwarders import Forwarder
from orchestrator.lab.pop import Lab
from orchestrator.policy.addresses import format_mac

_MACS = 0x0AAC1F050000


def carrier(number: int, **more: object) -> Carrier:
    """The firewall of a number."""
    links = [Link(port, format_mac(mac)) for port, mac in _sides(number)]
    return Carrier(f"plain{number}", number, *links, **more)  # type: ignore[arg-type]


def _sides(number: int) -> tuple[tuple[str, int], tuple[str, int]]:
    first = _MACS + 2 * number
    return (f"pl{number}", first), (f"pr{number}", first + 1)


@contextmanager
def plain(lab: Lab, number: int, tenants: str, rules: str = "") -> Iterator[Forwarder]:
    """A firewall with a filter of nft, or none, that sends what is for `tenants` to the right."""
    firewall = Forwarder(lab.layout.namespace(f"plain{number}"), *_sides(number))
    firewall.create(lab.layout.ovs_namespace, tenants)
    if rules:
        firewall.run("nft", "-f", "-", text=rules)
    bridges.attach_firewall(lab.ovs, firewall.ports)
    try:
        yield firewall
    finally:
        bridges.detach_firewall(lab.ovs, firewall.ports)
        firewall.remove()

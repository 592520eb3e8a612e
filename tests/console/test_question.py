"""Whom a question about a packet concerns."""

from __future__ import annotations

import pytest

from api.console.parts.question import concerned
from orchestrator.client.tenants import Spending, Tenant
from orchestrator.policy.addresses import Prefix

SHOP, BANK = (
    Tenant(name, name, "pop", number, (Prefix.parse(prefix),), 1, Spending(None, None))
    for number, (name, prefix) in enumerate([("shop", "198.51.100.0/24"), ("bank", "2001:db8:200::/48")], 1)
)


@pytest.mark.parametrize(
    ("source", "destination", "whom"),
    [
        ("192.0.2.1", "198.51.100.7", SHOP),
        ("2001:db8::1", "2001:db8:200::9", BANK),
        ("2001:db8:200::9", "2001:db8::1", BANK),
        ("198.51.100.7", "2001:db8:200::9", BANK),
        ("192.0.2.1", "203.0.113.1", SHOP),
        ("", "nonsense", SHOP),
    ],
)
def test_whom_a_packet_concerns(source: str, destination: str, whom: Tenant) -> None:
    assert concerned([SHOP, BANK], source, destination) is whom

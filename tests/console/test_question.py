"""Whom a question about a packet concerns."""

from __future__ import annotations

import datetime as dt

import pytest

from api.console.parts.question import find_concerned
from orchestrator.wire.tenants import Limits, Tenant

SHOP, BANK = (
    Tenant(
        id=name,
        name=name,
        domain="pop",
        number=number,
        prefixes=(prefix,),
        quota=Limits(None, None),
        version=1,
        created=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    )
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
    assert find_concerned([SHOP, BANK], source, destination) is whom

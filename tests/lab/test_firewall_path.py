"""A firewall VNF in the lab's path: its description, and where the edge sends what has not been through it."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput
from orchestrator.lab import edge, specfile
from orchestrator.lab.spec import FirewallSpec

POP = """
hosts: [{name: host1}, {name: host2}]
clients: [{name: out, addresses: [192.0.2.1, "2001:db8:ffff::1"]}]
tenants: [{id: shop, prefixes: [198.51.100.0/24, "2001:db8:100::/48"]}]
endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10, "2001:db8:100::10"]}]
"""
WITH = POP + "firewalls: [{name: fw1}]\n"


def test_a_description_with_a_firewall_is_written_as_it_was_read() -> None:
    read = specfile.parse(WITH)
    assert read.firewalls == (FirewallSpec("fw1"),)
    assert specfile.parse(specfile.dump(read)) == read
    assert specfile.parse(POP).firewalls == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("firewalls: [{name: fw1, plane: pf}]", r"firewalls\[0\].plane"),
        ("firewalls: [{name: web}]", r"firewalls\[0\].name"),
        ("firewalls: [{name: fw1}, {name: fw2}]", r"firewalls\[1\]"),
        ("firewalls: [{name: fw1, size: 3}]", "size"),
    ],
)
def test_what_is_wrong_about_it_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        specfile.parse(POP + text)


def test_all_that_meets_a_tenant_goes_through_it_once() -> None:
    plain, steered = (edge.flows(specfile.parse(text)).splitlines() for text in (POP, WITH))
    more = [flow for flow in steered if flow not in plain]
    assert [flow for flow in plain if flow not in steered] == []
    assert len(more) == 2 + 2 * 2  # each of the endpoint's addresses, and whatever comes from each host
    from_client = [flow for flow in more if 'in_port="cl-out"' in flow]
    from_hosts = [flow for flow in more if 'in_port="to-host' in flow]
    assert len(from_client) == 2
    assert len(from_hosts) == 4
    assert all(flow.endswith('output:"fl-fw1"') for flow in from_client)
    assert all(flow.endswith('output:"fr-fw1"') for flow in from_hosts)
    assert all('in_port="f' not in flow for flow in steered)  # what comes out of it goes where it is addressed to

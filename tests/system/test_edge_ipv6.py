"""A PoP whose tenants have IPv6 addresses and no others: edge switch, two firewall servers, service, agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from patience import until
from system.crossing import Site, check, from_outside

from orchestrator.client.records import Json
from orchestrator.lab import pop, scenes
from orchestrator.lab.demo import settled_traffic
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.service import POP, ControlPlane
from orchestrator.lab.spec import PopSpec
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP

PATIENCE_S = 60.0
WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80), PortRange(443, 443)))


def _of_ipv6(spec: PopSpec) -> PopSpec:
    """The same with what is IPv4 left out, for tenants and their machines."""

    def kept(prefixes: tuple[Prefix, ...]) -> tuple[Prefix, ...]:
        return tuple(each for each in prefixes if each.family is Family.IPV6)

    return replace(
        spec,
        tenants=tuple(replace(each, prefixes=kept(each.prefixes)) for each in spec.tenants),
        endpoints=tuple(replace(each, addresses=kept(each.addresses)) for each in spec.endpoints),
    )


@pytest.fixture(scope="module")
def site(layout: Layout) -> Iterator[Site]:
    spec = _of_ipv6(scenes.shipped_scene().spec)
    acls = {tenant.id: Acl((WEB,)) for tenant in spec.tenants}
    with pop.temporary(layout, spec) as lab:
        plane = ControlPlane(lab)
        plane.start(acls)
        yield Site(lab, plane, policy_of(spec, acls), acls)


def _served(seen: Json) -> int:
    return sum(ways["packets"] for each in seen["servers"].values() for ways in (each["lines"], each["exceptions"]))


def test_tenants_without_ipv4_are_reached_by_lines_and_as_heavy_hitters(site: Site) -> None:
    tried = len(from_outside(site))
    permitted = check(site)
    assert permitted > 0
    with site.plane.client() as client:
        assert client.pops.read(POP)["lines"]["ipv6"]["chunks"] > 0
        assert _served(settled_traffic(client)) == tried
        domain = client.pops.read(POP)["domain"]
        until(lambda: sum(each.packets for each in client.hits.read_domain(domain).items) >= permitted, PATIENCE_S)
        until(lambda: client.pops.choose_heavy_hitters(POP)["chosen"], PATIENCE_S)
        site.plane.wait_enforced(client, client.domains.read(domain).generation, PATIENCE_S)
        assert check(site) == permitted
        seen = settled_traffic(client)
    bypassed = sum(each["packets"] for each in seen["heavy"])
    assert 0 < bypassed <= permitted
    assert _served(seen) + bypassed == 2 * tried

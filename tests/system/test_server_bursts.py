"""Updates of many tenants at once, over REST: each is acknowledged when firewall servers hold it, many at a time."""

from __future__ import annotations

from orchestrator.bench.firewall_server.updates import (
    DOMAIN,
    Updates,
    burst,
    check,
    name,
    pair,
    run_servers,
    tenant_prefixes,
)
from orchestrator.bench.traffic.line import site
from orchestrator.lab.layout import Layout
from orchestrator.policy.model import Acl

TENANTS, UPDATES = 10, 20


def test_a_burst_ends_in_the_right_state_in_fewer_programs_than_updates(layout: Layout) -> None:
    """200 updates of 10 tenants; then the service is killed with changes in its windows, and nothing is lost."""
    found = Updates()
    with site(layout) as place, run_servers(place, 2, tenant_prefixes(TENANTS)) as servers:
        burst(servers, TENANTS, UPDATES, found)  # raises for an update that is not enforced, and another state
        assert len(found.burst_ms) == TENANTS * UPDATES
        assert len(found.generations) < TENANTS * UPDATES * 3 / 4
        with servers.client() as client:
            client.pops.configure("bench", {"window_ms": 60_000.0})
            for number in (1, 2, 3):  # the second and the third wait for the first to be held
                generation = client.acls.put(name(0), Acl((pair(0, number),))).generation
        servers.kill("service")
        servers.start_service({})
        with servers.client() as client:
            assert client.domains.read(DOMAIN).generation == generation
            servers.await_enforced(client, generation)
        others = {pair(tenant, number) for tenant in range(1, TENANTS) for number in range(UPDATES)}
        check(servers, {pair(0, 3), *others})

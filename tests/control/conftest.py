"""A PostgreSQL for tests of services that share a store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store.postgres_cluster import Cluster, running

from orchestrator.policy.addresses import Prefix
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as found:
        yield found


@pytest.fixture
def url(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the domains in `DOMAINS` of the test's module, each with a tenant."""
    name = f"domains_{abs(hash(request.node.name))}"
    url = cluster.create_database(name)
    upgrade(url)
    store = open_store(url)
    with store.write() as unit:
        for number, domain in enumerate(request.module.DOMAINS):
            unit.domains.create(domain)
            unit.tenants.create(f"of-{domain}", name="", domain=domain, prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    store.close()
    yield url
    cluster.drop_database(name)

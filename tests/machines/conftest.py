"""A service that speaks TLS for each module, with a domain, and machines that may enrol in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machines.machine import Machine
from patience import until
from served import Served, served

from orchestrator.client import Client, Host
from orchestrator.errors import Busy


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service"), tls=True, heartbeat_s=0.2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Served) -> Iterator[Client]:
    with service.client() as client:
        client.domains.create("pop1")
        client.domains.add_host("pop1", Host("host1", 1, "up0"))
        client.firewalls.add("pop1", "fw1", "nftables")
        until(lambda: is_compiled(client))
        yield client


def is_compiled(client: Client) -> bool:
    try:
        next(client.points.follow_program("pop1", lasts_s=1))
    except Busy:
        return False
    return True


@pytest.fixture
def machine(service: Served, admin: Client, tmp_path: Path) -> Machine:
    assert admin is not None
    return Machine(service, tmp_path)

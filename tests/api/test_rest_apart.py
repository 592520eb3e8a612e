"""On PostgreSQL a long write of a domain holds up neither what is asked about others, nor what agents say of load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S
from served import Served, served
from store.postgres_cluster import running

from orchestrator.errors import Busy
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Load

LONG, WEST = "long", "west"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with (
        running() as cluster,
        served(tmp_path, database_url=cluster.create_database("apart"), busy_timeout_s=1.0) as here,
    ):
        yield here


@contextmanager
def long_write(here: Served, domain: str) -> Iterator[None]:
    """A write of a domain that comes to its end when the block does."""
    works, go_on = threading.Event(), threading.Event()

    def work(_: Unit) -> None:
        works.set()
        assert go_on.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(here.service.parts.control.write, work, domain=domain)
        try:
            assert works.wait(PATIENCE_S)
            yield
        finally:
            go_on.set()
        done.result(PATIENCE_S)


def test_a_long_write_keeps_only_changes_of_its_own_domain_waiting(service: Served) -> None:
    with service.client() as admin:
        agents = {}
        for domain in (LONG, WEST):
            admin.domains.create(domain)
            admin.firewalls.add(domain, "fw1", "nftables")
            token = admin.enrolment.invite(domain)
            agents[domain] = admin.enrolment.enrol(token, name="fw1", kind="nftables")
        with (
            long_write(service, LONG),
            service.client(agents[LONG].token) as beside,
            service.client(agents[WEST].token) as elsewhere,
        ):
            beside.points.report_load(LONG, agents[LONG].enforcer, Load(1, 2, 3, 4))
            assert elsewhere.points.begin_epoch(WEST, agents[WEST].enforcer) > 0
            admin.enrolment.enrol(admin.enrolment.invite(WEST), name="late", kind="openflow")
            admin.pops.add(WEST, WEST, ("outside",), functions=8, heavy_interval_s=0)
            admin.pops.rebuild_lines(WEST)
            admin.pops.remove(WEST)
            admin.points.remove(WEST, agents[WEST].enforcer)
            with pytest.raises(Busy):
                admin.firewalls.add(LONG, "fw2", "nftables")
        (seen,) = admin.firewalls.read_all(LONG)
        assert seen.load is not None

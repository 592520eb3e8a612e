"""PostgreSQL is restarted, or fails over to a copy, while services write: nothing acknowledged is lost, all go on."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from control.test_owners import Replica, adding, replicas, watched, wrote
from patience import PATIENCE_S, until
from store.postgres_cluster import Server, binaries, replicated, url_of

from orchestrator.errors import TryAgain
from orchestrator.policy.addresses import Prefix
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade

DOMAINS = ("d0", "d1")
LAST = 60_000


def filled(url: str) -> None:
    """Make the domains, each with a tenant."""
    upgrade(url)
    store = open_store(url)
    with store.write() as unit:
        for number, domain in enumerate(DOMAINS):
            unit.domains.create(domain)
            unit.tenants.create(f"of-{domain}", name="", domain=domain, prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    store.close()


class Load:
    """Writes one rule after the other to a domain; remembers the last one that was acknowledged."""

    def __init__(self, replica: Replica, domain: str) -> None:
        self._replica, self._domain = replica, domain
        self.acknowledged: list[tuple[int, int]] = []
        """Ports with their generations."""

    def run(self, stopping: threading.Event) -> None:
        """Write until somebody says stop. What is refused for now is left out."""
        port = 0
        while not stopping.is_set():
            port += 1
            try:
                written = self._replica.control.carry_out(adding(self._domain, port), domain=self._domain)
            except TryAgain:
                continue
            self.acknowledged.append((port, written.generations[self._domain]))


@contextmanager
def loaded(services: list[Replica]) -> Iterator[list[Load]]:
    """Each service writes a domain during the block, and has written before it and at its end."""
    loads, stopping = [Load(*each) for each in zip(services, DOMAINS, strict=True)], threading.Event()
    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(each.run, stopping) for each in loads]
        try:
            until(lambda: all(len(each.acknowledged) > 2 for each in loads))
            yield loads
            before = [len(each.acknowledged) for each in loads]
            until(lambda: all(len(e.acknowledged) > b + 2 for e, b in zip(loads, before, strict=True)))
        finally:
            stopping.set()
        for job in jobs:
            job.result(PATIENCE_S)


def check_kept(services: list[Replica], loads: list[Load]) -> None:
    """Every generation is one write's, the last acknowledged rule is there or a later one, and others publish it."""
    for load, domain in zip(loads, DOMAINS, strict=True):
        port, generation = load.acknowledged[-1]
        generations = [each for _, each in load.acknowledged]
        assert generations == sorted(set(generations)), "no generation is given out twice"
        (rule,) = services[0].control.read(lambda unit, d=domain: unit.acls.current(f"of-{d}")).acl.rules  # type: ignore[misc]
        assert rule.destination_ports[0].low >= port
        for each in services:
            answer = watched(each, domain, None, generation)
            assert answer is not None
            assert answer.generation >= generation


def take_writes(services: list[Replica], happens: Callable[[], None]) -> float:
    """Let something happen; return the seconds from then until both services have written again."""
    happens()
    started = time.monotonic()
    until(lambda: all(wrote(each, domain, LAST) for each, domain in zip(services, DOMAINS, strict=True)))
    return time.monotonic() - started


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_restart_of_the_database_under_writes_loses_nothing(how: signal.Signals) -> None:
    if binaries() is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    server = Server(Path(tempfile.mkdtemp(prefix="aclflow-pg-")))
    try:
        server.make()
        server.start()
        url = server.cluster.create_database("store")
        filled(url)
        with replicas(url, None, None) as services:

            def restart() -> None:
                server.end(how)
                server.start()

            with loaded(services) as loads:
                seconds = take_writes(services, restart)
            check_kept(services, loads)
            assert seconds < PATIENCE_S, f"writes went on {seconds:.1f} s after the database was back"
    finally:
        server.clear()


def test_a_failover_of_the_database_under_writes_loses_nothing() -> None:
    with replicated() as (primary, standby):
        primary.cluster.create_database("store")
        url = url_of((primary, standby), "store")
        filled(url)
        with replicas(url, None, None) as services:

            def fail_over() -> None:
                primary.end(signal.SIGKILL)
                standby.promote()

            with loaded(services) as loads:
                seconds = take_writes(services, fail_over)
            check_kept(services, loads)
            assert seconds < PATIENCE_S, f"writes went on {seconds:.1f} s after the copy was promoted"

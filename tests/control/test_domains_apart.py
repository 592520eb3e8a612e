"""Domains on one PostgreSQL under three services: a long write in one keeps no other waiting, and nothing is lost."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from patience import PATIENCE_S, until
from store.postgres_cluster import Cluster

from orchestrator.control import units
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.reports import Report
from orchestrator.control.units import NO_DOMAIN
from orchestrator.errors import Busy, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store import Store, open_store
from orchestrator.store.audit import Wanted
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import HostRecord
from orchestrator.store.transaction import Elsewhere, StoreSettings, domain_part
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState

DOMAINS = ("east", "west", "north")
SOON = StoreSettings(busy_timeout_s=0.5)


@dataclass
class Replica:
    store: Store
    publisher: Publisher = field(default_factory=Publisher)

    def __post_init__(self) -> None:
        self.control = Control(self.store, Compiler(Metrics()), self.publisher)
        self.control.start()

    def close(self) -> None:
        self.control.stop()
        self.store.close()


@pytest.fixture
def replicas(url: str) -> Iterator[list[Replica]]:
    made = [Replica(open_store(url, settings=SOON)) for _ in range(3)]
    yield made
    for replica in made:
        replica.close()


def adding(domain: str, port: int) -> Callable[[Unit], int]:
    """A list of one more rule for a domain's tenant, and its generation."""

    def work(unit: Unit) -> int:
        tenant = f"of-{domain}"
        rules = [{"id": f"r{port}", "action": "permit", "protocol": "tcp", "destination_ports": port}]
        change = unit.acls.replace(tenant, acl_from_json({"rules": rules}), author="test")
        unit.events.append("acl.replaced", tenant, {"version": change.version, "generation": change.generation})
        return change.generation

    return work


@contextmanager
def long_write(
    replica: Replica, domain: str, port: int = 7, first: Callable[[Unit], object] = lambda _: None
) -> Iterator[threading.Event]:
    """A write of a domain that has done its work and does not come to its end until it is let, or the block is over."""
    works, go_on = threading.Event(), threading.Event()

    def work(unit: Unit) -> int:
        first(unit)
        generation = adding(domain, port)(unit)
        works.set()
        assert go_on.wait(PATIENCE_S)
        return generation

    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(replica.control.write, work, domain=domain)
        try:
            assert works.wait(PATIENCE_S)
            yield go_on
        finally:
            go_on.set()
        done.result(PATIENCE_S)


def test_a_long_write_keeps_only_its_own_domain_waiting(replicas: list[Replica]) -> None:
    first, second, _ = replicas
    with long_write(first, "east"):
        for port, replica in ((80, first), (81, second)):
            assert replica.control.carry_out(adding("west", port), payer="of-west").generations["west"]
            replica.control.write(adding("north", port), domain="north")
            with pytest.raises(Busy):
                replica.control.write(adding("east", 80), domain="east")


def test_what_another_service_commits_is_published_beside_a_long_write(replicas: list[Replica]) -> None:
    first, second, _ = replicas
    with long_write(first, "east"):
        first.control.loop.look_at("east", first=True)
        generation = second.control.write(adding("west", 80), domain="west")
        until(lambda: (program := first.publisher.program("west")) and program.generation >= generation)


def test_a_rule_ends_in_time_beside_a_long_write_of_another_domain(replicas: list[Replica]) -> None:
    first = replicas[0]
    with long_write(first, "east"):
        ends = first.store.now() + dt.timedelta(seconds=1.5)
        once = acl_from_json({"rules": [{"id": "once", "action": "permit", "expires": ends.isoformat()}]})
        first.control.carry_out(lambda unit: unit.acls.replace("of-west", once, author="test"), payer="of-west")
        until(lambda: not first.control.read(lambda unit: unit.acls.current("of-west").acl.rules))


def test_a_tenant_is_made_beside_a_long_write_of_another_domain(replicas: list[Replica]) -> None:
    first, second, _ = replicas
    with long_write(first, "east"):
        for replica, number in ((first, 100), (second, 101)):
            own = [Prefix.parse(f"10.{number}.0.0/16")]
            replica.control.write(
                lambda unit, number=number, own=own: unit.tenants.create(  # type: ignore[misc]
                    f"new{number}", name="", domain="west", prefixes=own
                ),
                domain="west",
            )


def test_a_tenant_whose_domain_was_forgotten_waits_for_that_domain_alone(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MOST_HOMES", 1)
    with long_write(replicas[0], "east"):
        for port, domain in ((80, "west"), (80, "north"), (81, "west")):
            assert replicas[0].control.carry_out(adding(domain, port), payer=f"of-{domain}").generations[domain]


def test_a_write_of_everything_waits_for_all_domains_and_they_for_it(replicas: list[Replica]) -> None:
    first, second, third = replicas
    with long_write(first, "east"), pytest.raises(Busy):
        second.control.write(lambda unit: unit.domains.create("south"))
    with third.store.write() as unit:
        unit.domains.create("south")
        for replica in (first, second):
            with pytest.raises(Busy):
                replica.control.write(adding("west", 80), domain="west")


def test_a_write_of_everything_gives_up_beside_a_long_write_of_its_own_service(replicas: list[Replica]) -> None:
    """While it waits, the other domains' writers wait for it."""
    first = replicas[0]
    with long_write(first, "east"):
        with pytest.raises(Busy):
            first.control.write(lambda unit: unit.domains.create("south"))
        first.control.write(adding("west", 80), domain="west")


def test_what_another_person_must_approve_is_rehearsed_in_its_own_domain(replicas: list[Replica]) -> None:
    first = replicas[0]
    with long_write(first, "east"):
        generation = first.control.rehearse(adding("west", 80), payer="of-west")
        assert first.control.rehearse(adding("north", 80), domain="north") > 0
    with first.store.read() as unit:
        assert unit.domains.get("west").generation < generation


def test_what_moves_no_domain_is_done_beside_a_long_write(replicas: list[Replica]) -> None:
    first = replicas[0]
    with long_write(first, "east"):
        first.control.write(lambda unit: unit.fleets.keep("somebody", 30.0), domain=NO_DOMAIN)
        with pytest.raises(NotFound):
            first.control.carry_out(lambda unit: unit.tenants.rename("nobody", "x"), tenant="nobody")
    with pytest.raises(Elsewhere), first.store.turn(part=domain_part(NO_DOMAIN)) as turn:
        adding("west", 80)(turn.unit)


def test_nobody_takes_the_lease_on_fleets_in_the_middle_of_its_keepers_write(replicas: list[Replica]) -> None:
    """However long it takes: another one would order the same VNFs."""
    first, second, _ = replicas
    lease_s, kept = 3.0, list[bool]()

    def takes(who: str) -> bool:
        return second.control.write(lambda unit: unit.fleets.keep(who, lease_s), domain=NO_DOMAIN)

    assert takes("one")
    with long_write(first, "west", first=lambda unit: kept.append(unit.fleets.is_keeper("one"))):
        assert kept == [True]
        assert not takes("two")
        over = second.store.now() + dt.timedelta(seconds=lease_s)
        until(lambda: second.store.now() > over)
        with pytest.raises(Busy):
            takes("two")
        second.control.write(adding("north", 80), domain="north")
    assert takes("two")


def test_a_write_that_names_another_domain_than_it_moves_is_carried_out_over_all(replicas: list[Replica]) -> None:
    first = replicas[0]
    done = first.control.carry_out(lambda unit: (adding("east", 5)(unit), adding("west", 5)(unit)), domain="west")
    assert set(done.generations) == {"east", "west"}
    first.control.carry_out(adding("east", 6), payer="of-east")
    with first.store.write() as unit:  # another process moves the tenant while this one believes it where it was
        unit.acls.replace("of-east", acl_from_json({"rules": []}), author="test")
        unit.tenants.delete("of-east")
        unit.tenants.create("of-east", name="", domain="north", prefixes=[Prefix.parse("10.0.0.0/16")])
    assert set(first.control.carry_out(adding("east", 7), payer="of-east").generations) == {"north"}


def test_reports_and_counts_do_not_wait_for_a_long_list_not_even_in_their_own_domain(replicas: list[Replica]) -> None:
    first, second, _ = replicas
    with second.store.write() as unit:
        for number, host in enumerate(("h1", "h2"), 1):
            unit.domains.add_host("east", HostRecord(host, number, "up"))
        token = unit.enforcers.invite("east", expires=unit.now.replace(year=unit.now.year + 1), author="x")
        enforcer = unit.enforcers.enrol(token, name="one", kind="openflow").enforcer.id
        generation = unit.domains.get("east").generation
    until(lambda: (program := first.publisher.program("east")) and program.generation >= generation)
    reports = Enforcement(second.store, Metrics(), recheck_s=0.1)

    def report(host: str, at: int) -> None:
        reports.report("east", enforcer, Report((PointReport(host, at, bytes(16), PointState.ENFORCED),)))

    with long_write(first, "east"):
        report("h1", generation)
        with second.store.read() as unit:
            assert [each.report.host for each in unit.enforcers.points("east")] == ["h1"]
    report("h2", generation)
    assert reports.enforced_state("east", generation).done
    with second.store.read() as unit:
        newest = unit.domains.get("east").generation
    report("h1", newest + 1)  # which raises the domain: more than reports may write by themselves
    with second.store.read() as unit:
        assert unit.domains.get("east").generation > newest + 1
    reports.close()


def test_a_domain_does_not_move_in_a_transaction_of_another(replicas: list[Replica]) -> None:
    with replicas[0].store.turn(part=domain_part("west")) as turn, pytest.raises(Elsewhere):
        adding("east", 80)(turn.unit)


def test_events_have_the_order_of_commits_whatever_was_begun_first(replicas: list[Replica]) -> None:
    first, second, third = replicas
    with long_write(first, "east", 9):
        second.control.write(adding("west", 80), domain="west")
        with third.store.read() as unit:
            seen = unit.events.last_id()
            assert "of-west" in {event.subject for event in unit.events.since(0, limit=1000).events}
    with third.store.read() as unit:
        later = unit.events.since(seen, limit=1000).events
    assert "of-east" in {event.subject for event in later}, "an event came below what was read already"


def test_three_services_at_once_lose_nothing_and_agree(replicas: list[Replica]) -> None:
    """Every service writes every domain: each generation once, in the order of commits, and one program in the end."""
    rounds, answered, lock = 6, list[tuple[str, int]](), threading.Lock()

    def write(number: int, replica: Replica, domain: str) -> None:
        for turn in range(rounds):
            while True:
                try:
                    generation = replica.control.write(adding(domain, 1 + number * rounds + turn), domain=domain)
                except Busy:
                    continue
                break
            with lock:
                answered.append((domain, generation))

    with ThreadPoolExecutor(9) as threads:
        jobs = [(replica, domain) for replica in replicas for domain in DOMAINS]
        for each in [threads.submit(write, number, *job) for number, job in enumerate(jobs)]:
            each.result(PATIENCE_S)
    assert len(answered) == 9 * rounds
    with replicas[0].store.read() as unit:
        newest = {domain: unit.domains.get(domain).generation for domain in DOMAINS}
        events = unit.events.since(0, limit=1000).events
    for domain in DOMAINS:
        told = [event.detail["generation"] for event in events if event.subject == f"of-{domain}"]
        assert told == sorted(told)
        assert set(told) >= {generation for name, generation in answered if name == domain}
        until(
            lambda domain=domain: (
                {  # type: ignore[misc]
                    (program.generation, program.digest) if (program := each.publisher.program(domain)) else None
                    for each in replicas
                }
                == {(newest[domain], replicas[0].publisher.program(domain).digest)}
            )  # type: ignore[union-attr]
        )
    verify_trails(replicas[0].store)


def verify_trails(store: Store) -> None:
    """Each service's chain of the audit trail has no gap, no doubled number and no wrong hash."""
    with store.read() as unit:
        entries = unit.audit.page(Wanted(), marker=None, limit=10_000)
    chains: dict[str, list[object]] = {}
    for entry in entries:
        chains.setdefault(entry.chain, []).append(entry)
        before = chains[entry.chain][-2].hash if len(chains[entry.chain]) > 1 else None  # type: ignore[attr-defined]
        assert entry.number == len(chains[entry.chain])
        assert before is None or entry.link(bytes.fromhex(before)).hex() == entry.hash
    assert len(chains) >= 3


HOLDS = """
import sys, time
from orchestrator.store import open_store
from orchestrator.store.transaction import domain_part
store = open_store(sys.argv[1])
with store.write(part=domain_part("east")) as unit:
    unit.tenants.rename("of-east", "by who stopped")
    print("holds", flush=True)
    time.sleep(3600)
"""


def test_a_service_that_is_stopped_in_the_middle_of_a_write_keeps_only_its_domain(
    replicas: list[Replica], url: str
) -> None:
    """And once the database has ended its connection, nothing that it goes on with is committed."""
    stopped = subprocess.Popen([sys.executable, "-c", HOLDS, url], stdout=subprocess.PIPE, text=True)
    try:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "holds\n"
        os.kill(stopped.pid, signal.SIGSTOP)
        first = replicas[0]
        first.control.write(adding("west", 80), domain="west")
        with pytest.raises(Busy):
            first.control.write(adding("east", 80), domain="east")
        with first.store.engine.connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' "
                "AND pid <> pg_backend_pid()"
            )
        until(lambda: wrote(first, "east"))
        os.kill(stopped.pid, signal.SIGCONT)
        with first.store.read() as unit:
            assert unit.tenants.get("of-east").name == ""
    finally:
        stopped.kill()
        stopped.wait()


def wrote(replica: Replica, domain: str) -> bool:
    try:
        replica.control.write(adding(domain, 80), domain=domain)
    except Busy:
        return False
    return True


def test_numbers_drawn_beside_each_other_are_never_the_same(replicas: list[Replica]) -> None:
    drawn, lock = list[int](), threading.Lock()

    def draw(replica: Replica, domain: str) -> None:
        for _ in range(20):
            with replica.store.turn(part=domain_part(domain)) as turn:
                number = turn.unit.transaction.draw("rule", 3)
            with lock:
                drawn.extend(range(number, number + 3))

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(draw, *pair) for pair in zip(replicas, DOMAINS, strict=True)]:
            each.result(PATIENCE_S)
    assert len(set(drawn)) == len(drawn) == 180


def test_writes_go_on_after_the_database_has_ended_every_connection(replicas: list[Replica], cluster: Cluster) -> None:
    """As it does when it is restarted: no connection that was kept is written on, and no program is behind for long."""
    for replica in replicas:
        for domain in DOMAINS:
            replica.control.write(adding(domain, 80), domain=domain)
    with cluster.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'aclflow%'"
        )
    for number, replica in enumerate(replicas):
        for domain in DOMAINS:
            replica.control.write(adding(domain, 90 + number), domain=domain)
    with replicas[0].store.read() as unit:
        newest = {domain: unit.domains.get(domain).generation for domain in DOMAINS}
    for replica in replicas:
        for domain, generation in newest.items():
            until(
                lambda replica=replica, domain=domain, generation=generation: replica.control.is_compiled(
                    domain, generation
                )
            )  # type: ignore[misc]

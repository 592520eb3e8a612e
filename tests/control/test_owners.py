"""Three services on one PostgreSQL: each domain has one owner, and any of them may be killed, stopped or paused."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from patience import PATIENCE_S, until
from served import ServiceProcess
from store.postgres_cluster import Cluster

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.control import Control
from orchestrator.control.duties import Duties
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.errors import Busy, NotFound, TryAgain
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from orchestrator.store.records import PolicySnapshot, Role
from orchestrator.store.sql.database import PART_LOCK
from orchestrator.store.sql.livingservices import SILENT_LOOKS, Membership, Silence
from orchestrator.store.unit import Unit

DOMAINS = tuple(f"d{number:02}" for number in range(12))


# ------------------------------------------------------------------------------------------------------- who owns what


def test_every_service_names_the_same_owner_and_each_has_a_share() -> None:
    living = frozenset("abc")
    owners = [Membership("a", living).owner(f"d{number}") for number in range(3000)]
    assert owners == [Membership("b", living).owner(f"d{number}") for number in range(3000)]
    assert all(800 < owners.count(name) < 1200 for name in living)


def test_a_service_that_goes_moves_only_its_own_domains() -> None:
    domains = [f"d{number}" for number in range(500)]
    before, after = Membership("a", frozenset("abc")), Membership("a", frozenset("ab"))
    moved = [domain for domain in domains if before.owner(domain) != after.owner(domain)]
    assert moved == [domain for domain in domains if before.owner(domain) == "c"]


def test_silence_is_counted_in_looks_and_ends_with_the_first_query() -> None:
    silence = Silence()
    for looks in range(SILENT_LOOKS + 1):
        assert silence.look({"b": (7, "noon")}) == {"b": looks}
    assert silence.look({"b": (7, "noon")}, counts=False) == {"b": SILENT_LOOKS}
    assert silence.look({"b": (7, "an hour before noon")}) == {"b": 0}, "a clock that is set back is a sign of life"
    assert silence.look({}) == {}
    assert silence.look({"b": (7, "an hour before noon")}) == {"b": 0}


def test_a_domain_is_followed_for_a_while_after_its_last_watcher(url: str) -> None:
    now = [0.0]
    store = open_store(url)
    duties = Duties(store.members, ticks=lambda: now[0])
    assert not duties.is_followed("d")
    with duties.following("d"), duties.following("d"):
        pass
    assert duties.is_followed("d")
    now[0] += 61
    assert not duties.is_followed("d")
    store.close()


# ------------------------------------------------------------------------------------------------- services in here


@dataclass
class Replica:
    store: Store
    publisher: Publisher
    compiler: Compiler
    control: Control
    duties: Duties

    @classmethod
    def on(cls, url: str, compiler: Compiler | None = None, ahead: dt.timedelta = dt.timedelta()) -> Replica:
        store = open_store(url, clock=lambda: dt.datetime.now(dt.UTC) + ahead)
        compiler, publisher, duties = compiler or Compiler(Metrics()), Publisher(), Duties(store.members)
        return cls(store, publisher, compiler, Control(store, compiler, publisher, duties=duties), duties)

    def generation(self, domain: str) -> int:
        program = self.publisher.program(domain)
        return 0 if program is None else program.generation

    def close(self) -> None:
        self.publisher.close()
        self.control.stop()
        self.store.close()


@contextmanager
def replicas(url: str, *compilers: Compiler | None, **options: Any) -> Iterator[list[Replica]]:
    made: list[Replica] = []
    try:
        for compiler in compilers:
            made.append(Replica.on(url, compiler, **options))
            made[-1].control.start()
        until(lambda: all(len(each.store.members.now.living) == len(made) for each in made))  # type: ignore[union-attr]
        yield made
    finally:
        for each in made:
            each.close()


def adding(domain: str, port: int) -> Callable[[Unit], int]:
    rules = [{"id": f"r{port}", "action": "permit", "protocol": "tcp", "destination_ports": port}]
    return lambda unit: unit.acls.replace(f"of-{domain}", acl_from_json({"rules": rules}), author="x").generation


def watched(replica: Replica, domain: str, held: Held | None, stored: int) -> Answer | None:
    return asyncio.run(replica.control.watches.watch(domain, held, PATIENCE_S, stored_generation=stored))


class Counting(Compiler):
    """Counts what it compiles, and cannot compile one domain while it is told so."""

    def __init__(self, fails: str = "") -> None:
        super().__init__(Metrics())
        self.compiled: list[str] = []
        self.fails = fails

    def compile(self, domain: str, snapshot: PolicySnapshot, *, is_intersection: bool = False) -> Compiled:
        if domain == self.fails:
            raise MemoryError("planted")
        self.compiled.append(domain)
        return super().compile(domain, snapshot, is_intersection=is_intersection)


def test_a_service_that_nobody_uses_compiles_nothing_while_others_write(url: str) -> None:
    with replicas(url, Counting(), Counting()) as (first, idle):
        until(lambda: all(each.control.is_compiled(d, 1) for each in (first, idle) for d in DOMAINS))
        others = [domain for domain in DOMAINS if not idle.duties.owns(domain)]
        assert isinstance(idle.compiler, Counting)
        idle.compiler.compiled.clear()
        for port in range(1, 4):
            for domain in others:
                first.control.write(adding(domain, port), domain=domain)
        for domain in others:
            assert not idle.duties.keeps(domain)
        idle.control.check_ready()
        assert not set(idle.compiler.compiled) & set(others)


def test_a_watcher_anywhere_is_given_what_another_service_commits(url: str) -> None:
    with replicas(url, None, None) as (first, second):
        domain = next(each for each in DOMAINS if first.duties.owns(each))
        stored = first.control.read(lambda unit: unit.domains.get(domain).generation)
        until(lambda: first.generation(domain) >= stored)
        answer = watched(second, domain, None, stored)
        assert answer is not None
        assert answer.generation == stored
        for port in (80, 81):
            generation = first.control.write(adding(domain, port), domain=domain)
            held = Held(answer.digest, answer.generation)
            answer = watched(second, domain, held, stored)
            assert answer is not None
            assert answer.generation == generation
            assert first.publisher.program(domain).digest == answer.digest  # type: ignore[union-attr]


def test_a_program_from_long_ago_is_not_given_out_by_a_service_that_was_not_asked_meanwhile(url: str) -> None:
    with replicas(url, None, None) as (first, second):
        domain = next(each for each in DOMAINS if first.duties.owns(each))
        second.control.write(adding(domain, 1), domain=domain)
        old = second.generation(domain)
        newest = first.control.write(adding(domain, 2), domain=domain)
        assert second.generation(domain) == old, "nobody follows it there"
        answer = watched(second, domain, None, newest)
        assert answer is not None
        assert answer.generation == newest


def is_ready(control: Control) -> bool:
    try:
        control.check_ready()
    except Busy:
        return False
    return True


def test_a_write_anywhere_goes_on_from_what_others_committed(url: str) -> None:
    """Generations stay in the order of commits, and the programs are the same whoever makes them."""
    with replicas(url, None, None, None) as made:
        domain = DOMAINS[0]
        generations = [made[turn % 3].control.write(adding(domain, 1 + turn), domain=domain) for turn in range(9)]
        assert generations == sorted(set(generations))
        for each in made:
            until(lambda each=each: is_ready(each.control))
            assert each.control.flows_of(domain, 1) is not None
        until(lambda: {each.generation(domain) for each in made} == {generations[-1]})
        programs = {each.publisher.program(domain).digest for each in made}  # type: ignore[union-attr]
        assert len(programs) == 1


def test_a_service_takes_over_from_notices_what_others_changed_of_a_policy(url: str) -> None:
    """Lists that others changed are read, all else stays as it is in memory; a gap in the notices, and all is read."""
    with replicas(url, None, None) as (first, second):
        domain = DOMAINS[0]
        own_generation = second.control.write(adding(domain, 1), domain=domain)
        for port in range(2, 6):
            generation = first.control.write(adding(domain, port), domain=domain)
        cache = second.store.policies
        until(lambda: cache.lists_changed(domain, own_generation, generation) == {f"of-{domain}"})
        assert cache.lists_changed(domain, own_generation - 1, generation) is None
        mine, theirs = (each.control.read(lambda unit: unit.domains.policy(domain)) for each in (second, first))
        assert mine.generation == theirs.generation == generation
        assert mine.policy == theirs.policy
        own = [Prefix.parse("10.200.0.0/16")]
        first.control.write(
            lambda unit: unit.tenants.create("late", name="", domain=domain, prefixes=own), domain=domain
        )
        for port in range(6, 8):
            first.control.write(adding(domain, port), domain=domain)
        newest = first.control.read(lambda unit: unit.domains.policy(domain))
        assert second.control.read(lambda unit: unit.domains.policy(domain)).policy == newest.policy
        assert len(newest.policy.tenants) == 2


def test_services_whose_clocks_differ_by_days_own_the_same_domains(url: str) -> None:
    """A clock that jumps is one that differs from then on."""
    wrong, right = Replica.on(url, ahead=dt.timedelta(days=3)), Replica.on(url)
    try:
        for each in (wrong, right):
            each.control.start()
        until(lambda: all(len(each.store.members.now.living) == 2 for each in (wrong, right)))  # type: ignore[union-attr]
        assert all(wrong.duties.owns(domain) != right.duties.owns(domain) for domain in DOMAINS)
        for number, each in enumerate((wrong, right, wrong)):
            assert each.control.write(adding(DOMAINS[0], 80 + number), domain=DOMAINS[0])
    finally:
        wrong.close()
        right.close()


def test_a_domain_that_does_not_compile_keeps_no_other_from_its_new_owner(url: str) -> None:
    with replicas(url, None, Counting()) as (first, second):
        assert isinstance(second.compiler, Counting)
        theirs = [domain for domain in DOMAINS if first.duties.owns(domain)]
        second.compiler.fails = theirs[0]
        for domain in theirs:
            first.control.write(adding(domain, 80), domain=domain)
        newest = {domain: first.generation(domain) for domain in theirs}
        first.close()
        until(lambda: all(second.generation(domain) == newest[domain] for domain in theirs[1:]))
        until(lambda: not second.control.is_compiled(theirs[0], newest[theirs[0]]))
        with pytest.raises(Busy):
            second.control.check_ready(theirs[0])
        second.compiler.fails = ""
        until(lambda: second.generation(theirs[0]) == newest[theirs[0]])


def test_a_tenant_that_moves_between_domains_under_load_is_written_where_it_is(url: str) -> None:
    stopping, failed = threading.Event(), list[BaseException]()

    def load(replica: Replica) -> None:
        port = 0
        while not stopping.is_set():
            port += 1
            try:
                replica.control.carry_out(adding(DOMAINS[0], 1 + port % 60_000), payer=f"of-{DOMAINS[0]}")
            except (NotFound, TryAgain):
                continue
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                failed.append(error)
                return

    def moved_to(domain: str) -> Callable[[Unit], None]:
        def work(unit: Unit) -> None:
            unit.acls.replace(f"of-{DOMAINS[0]}", acl_from_json({"rules": []}), author="x")
            unit.tenants.delete(f"of-{DOMAINS[0]}")
            unit.tenants.create(f"of-{DOMAINS[0]}", name="", domain=domain, prefixes=[Prefix.parse("10.0.0.0/16")])

        return work

    with replicas(url, None, None) as (first, second), ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(load, each) for each in (first, second)]
        for turn in range(8):
            (first, second)[turn % 2].control.write(moved_to(DOMAINS[turn % 3]))
        stopping.set()
        for job in jobs:
            job.result(PATIENCE_S)
        assert not failed
        home = first.control.read(lambda unit: unit.tenants.get(f"of-{DOMAINS[0]}").domain)
        unused = 60_001  # a rule that the load wrote last would change nothing
        assert set(second.control.carry_out(adding(DOMAINS[0], unused), payer=f"of-{DOMAINS[0]}").generations) == {home}


def test_services_find_each_other_again_when_the_database_was_restarted(url: str, cluster: Cluster) -> None:
    with replicas(url, None, None) as (first, second):
        with cluster.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        until(lambda: wrote(first, DOMAINS[0], 80) and wrote(second, DOMAINS[1], 80))
        until(lambda: all(first.duties.owns(domain) != second.duties.owns(domain) for domain in DOMAINS))


def wrote(replica: Replica, domain: str, port: int) -> bool:
    try:
        replica.control.write(adding(domain, port), domain=domain)
    except TryAgain:
        return False
    return True


# ------------------------------------------------------------------------------------------ services that are killed


@dataclass
class Fleet:
    services: list[ServiceProcess]
    token: str
    cluster: Cluster
    database: str

    def client(self, number: int) -> Client:
        return Client(self.services[number].url, self.token)

    def kept(self, number: int) -> set[str]:
        """The domains that a service keeps, as its metrics name them."""
        text = httpx.get(f"{self.services[number].url}/metrics", headers={"X-Auth-Token": self.token}).text
        return {domain for domain in DOMAINS if f'aclflow_generation{{domain="{domain}"}}' in text}

    def put(self, number: int, domain: str, port: int, rules: int = 1) -> httpx.Response:
        body = {
            "rules": [
                {"id": f"r{each}", "action": "permit", "protocol": "tcp", "destination_ports": port + each}
                for each in range(rules)
            ]
        }
        path = f"{self.services[number].url}/v1/tenants/of-{domain}/acl"
        headers = {"X-Auth-Token": self.token, "If-Match": "*"}
        return httpx.put(path, json=body, headers=headers, timeout=PATIENCE_S)


@pytest.fixture
def fleet(url: str, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    folders = [tmp_path / name for name in ("a", "b")]
    services = []
    for folder in folders:
        folder.mkdir()
        services.append(ServiceProcess(folder, database_url=url))
    token = create_token(Settings(state_dir=folders[0], database_url=url), Role.ADMIN).secret
    try:
        for service in services:
            service.start()
        found = Fleet(services, token, cluster, url.partition("@/")[2].partition("?")[0])
        until(lambda: not found.kept(0) & found.kept(1))
        until(lambda: found.kept(0) | found.kept(1) == set(DOMAINS))
        yield found
    finally:
        for service in services:
            service.kill()


def test_a_killed_service_loses_nothing_that_it_acknowledged_and_its_domains_go_on(fleet: Fleet) -> None:
    theirs = sorted(fleet.kept(0))
    stopping, acknowledged = threading.Event(), dict[str, int]()

    def load(domain: str) -> None:
        port = 0
        while not stopping.is_set():
            port += 1
            try:
                if fleet.put(0, domain, port).is_success:
                    acknowledged[domain] = port
            except httpx.HTTPError:
                return

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(load, domain) for domain in theirs[:2]]
        until(lambda: len(acknowledged) == 2)
        fleet.services[0].kill()
        stopping.set()
        for job in jobs:
            job.result(PATIENCE_S)
    until(lambda: fleet.kept(1) == set(DOMAINS))
    with fleet.client(1) as client:
        for domain, port in acknowledged.items():
            (rule,) = client.acls.read(f"of-{domain}").acl.rules
            assert rule.destination_ports[0].low >= port, "what was acknowledged is there, or what came after it"
            generation = fleet.put(1, domain, 60_000).json()["generation"]
            assert client.points.watch_program(domain, wait_s=30).generation >= generation


def test_a_service_that_stops_hands_its_domains_over_while_it_ends(fleet: Fleet) -> None:
    fleet.services[0].stop()
    until(lambda: fleet.kept(1) == set(DOMAINS))


def test_a_paused_service_that_comes_back_cannot_commit_what_it_was_at(fleet: Fleet) -> None:
    """It holds its domain's turn until the other ends its sessions; what it goes on with then is not there."""
    until(lambda: fleet.kept(0))  # it may have begun just now
    domain = sorted(fleet.kept(0))[0]
    assert fleet.put(0, domain, 1).is_success
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(fleet.put, 0, domain, 2, 4000)
        until(lambda: holds_turn(fleet))
        os.kill(fleet.services[0].pid, signal.SIGSTOP)
        try:
            assert holds_turn(fleet), "it was done already: the test needs a longer list"
            until(lambda: fleet.put(1, domain, 9).is_success, 45)  # the database itself would end it after 60 s
        finally:
            os.kill(fleet.services[0].pid, signal.SIGCONT)
        assert late.result(PATIENCE_S).is_server_error
    with fleet.client(1) as client:
        assert len(client.acls.read(f"of-{domain}").acl.rules) == 1
    until(lambda: fleet.put(0, domain, 10).is_success)
    until(lambda: fleet.kept(0) and fleet.kept(0) != set(DOMAINS))


def holds_turn(fleet: Fleet) -> bool:
    """Whether somebody is in the turn of a domain."""
    with fleet.cluster.connect(fleet.database) as connection:
        held = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s", (PART_LOCK,)
        ).fetchone()
    return held != (0,)

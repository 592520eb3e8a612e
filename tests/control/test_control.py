"""Compiling before committing, catching up with others' commits, expiry."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from sqlalchemy import Connection

from orchestrator.compile.hostprogram import CompileCache
from orchestrator.control import compiler as compiler_module
from orchestrator.control.ceilings import Admission, Ceilings
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.duties import IdleHosts
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.maker import Maker
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Held, Publisher
from orchestrator.control.reports import Report
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Tiers
from orchestrator.control.units import LoopUnits
from orchestrator.errors import Busy, NotFound, TooLarge, Unreachable
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import EVERY_IPV4
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Policy
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.store import Store, open_store
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import Change, HostRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState


class Clock:
    def __init__(self) -> None:
        self.ahead = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.ahead


class Plant:
    """A store, its control, and what it publishes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Clock()
        self.store = open_store(url, clock=self.clock)
        self.publisher = Publisher()
        self.metrics = Metrics()
        self.control = Control(self.store, Compiler(self.metrics), self.publisher)

    def program(self, domain: str = "pop") -> Program:
        program = self.publisher.program(domain)
        assert program is not None
        return program

    def wait_until_ready(self) -> None:
        until(lambda: _is_ready(self.control))

    def close(self) -> None:
        self.publisher.close()
        self.control.stop()
        self.store.close()


def _is_ready(control: Control) -> bool:
    try:
        control.check_ready()
    except Busy:
        return False
    return True


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str) -> Iterator[Plant]:
    made = Plant(url)
    with made.store.write() as unit:
        unit.domains.create("pop")
        unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4])
    made.control.start()
    made.wait_until_ready()
    yield made
    made.close()


@pytest.fixture
def neighbour(plant: Plant) -> Iterator[Store]:
    """The same database, as another process has it open."""
    store = open_store(plant.url)
    yield store
    store.close()


def ports(*numbers: int, **more: object) -> Acl:
    rules = [
        {"id": f"p{each}", "action": "permit", "protocol": "tcp", "destination_ports": each, **more} for each in numbers
    ]
    return acl_from_json({"rules": rules})


def put(acl: Acl) -> Callable[[Unit], Change]:
    return lambda unit: unit.acls.replace("all", acl, author="test")


def stored_generation(plant: Plant) -> int:
    return plant.control.read(lambda unit: unit.domains.get("pop").generation)


# ---------------------------------------------------------------------------------------------------- writing


def test_the_control_loop_waits_for_no_writer_that_takes_long(plant: Plant) -> None:
    units, done = LoopUnits(plant.control, plant.control.maker.deciding), list[str]()
    with plant.control.maker.deciding.of("pop"):
        with pytest.raises(Busy):
            units.write(lambda _: done.append("pop"), domain="pop")
        assert not done
    units.write(lambda _: done.append("pop"), domain="pop")
    assert done == ["pop"]


def test_a_start_publishes_what_is_stored(plant: Plant) -> None:
    assert plant.program().generation == stored_generation(plant)


def test_a_write_is_acknowledged_and_published_later_where_publishing_fails_at_first(plant: Plant) -> None:
    publish, failed = plant.publisher.publish, list[int]()

    def failing(program: Program, change: Delta | None = None) -> bool:
        if not failed:
            failed.append(program.generation)
            raise RuntimeError("planted")
        return publish(program, change)

    plant.publisher.publish = failing  # type: ignore[method-assign]
    written = plant.control.carry_out(put(ports(80)))
    assert written.generations == {"pop": written.answer.generation}
    assert failed == [written.answer.generation]
    until(lambda: plant.program().generation == written.answer.generation)


def test_a_commit_is_told_to_others_and_published_before_that(plant: Plant) -> None:
    heard: list[tuple[int, int]] = []
    end = plant.store.subscribe(lambda committed: heard.append((committed.domains["pop"], plant.program().generation)))
    written = plant.control.carry_out(put(ports(81)))
    end()
    assert heard == [(written.answer.generation, written.answer.generation)]


def test_a_write_is_published_when_it_returns(plant: Plant) -> None:
    change = plant.control.write(put(ports(80)))
    assert plant.program().generation == change.generation


def test_a_write_is_compiled_once(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    for port in (80, 81, 82):
        plant.control.write(put(ports(port)))
    time.sleep(0.1)  # the loop would have compiled by now what it believes to be behind
    assert compiled == [plant.program().generation - 2, plant.program().generation - 1, plant.program().generation]


def test_what_does_not_compile_is_not_written(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.control.write(put(ports(80)))
    before = plant.program()
    monkeypatch.setattr(compiler_module, "compile_host", too_large)
    with pytest.raises(TooLarge):
        plant.control.write(put(ports(80, 443)))
    monkeypatch.undo()
    assert plant.control.read(lambda unit: unit.acls.current("all").acl) == ports(80)
    assert plant.program() is before
    assert stored_generation(plant) == before.generation
    assert plant.control.write(put(ports(22))).generation == before.generation + 1
    assert plant.program().generation == before.generation + 1


def test_work_that_fails_changes_nothing(plant: Plant) -> None:
    before = plant.program()

    def fail(unit: Unit) -> None:
        unit.acls.replace("all", ports(80), author="test")
        raise NotFound("something else")

    with pytest.raises(NotFound):
        plant.control.write(fail)
    assert plant.program() is before
    assert stored_generation(plant) == before.generation


def test_writers_on_many_threads_publish_in_order(plant: Plant) -> None:
    seen: list[int] = []
    publish = plant.publisher.publish

    def noting(program: Program, change: Delta | None = None) -> bool:
        fresh = publish(program, change)
        seen.append(plant.program().generation)
        return fresh

    plant.publisher.publish = noting  # type: ignore[method-assign]
    threads = [
        threading.Thread(target=lambda port=port: plant.control.write(put(ports(port)))) for port in range(1, 13)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == sorted(seen)
    assert plant.program().generation == stored_generation(plant)


def test_a_commit_whose_outcome_is_unknown_is_looked_up(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks in the commit: the change is there, and must come to be published."""
    commit = Connection.commit

    def commit_and_break(connection: Connection) -> None:
        commit(connection)
        raise Unreachable("the connection broke during the commit")

    monkeypatch.setattr(Connection, "commit", commit_and_break)
    with pytest.raises(Unreachable):
        plant.control.write(put(ports(80)))
    monkeypatch.undo()
    assert plant.control.read(lambda unit: unit.acls.current("all").acl) == ports(80)
    until(lambda: plant.program().generation == stored_generation(plant))


# ---------------------------------------------------------------------------------------------------- catching up


def test_what_another_process_wrote_is_compiled_when_somebody_watches(plant: Plant, neighbour: Store) -> None:
    old = plant.program()
    with neighbour.write() as unit:
        put(ports(80))(unit)
    stored = stored_generation(plant)
    assert stored > old.generation
    held = Held(old.digest, old.generation)
    answer = asyncio.run(plant.control.watches.watch("pop", held, 5, stored_generation=stored))
    assert answer is not None
    assert answer.generation == stored


def test_the_latest_goal_wins(plant: Plant, neighbour: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one generation is compiled four more come and go: of those only the last is compiled."""
    began, go_on = threading.Event(), threading.Event()
    real = compiler_module.compile_host
    compiled: list[int] = []

    def slowly(
        policy: Policy, *, domain: str, generation: int, lifted: tuple[LiftedRule, ...], cache: CompileCache
    ) -> Program:
        began.set()
        assert go_on.wait(PATIENCE_S)
        compiled.append(generation)
        return real(policy, domain=domain, generation=generation, lifted=lifted, cache=cache)

    monkeypatch.setattr(compiler_module, "compile_host", slowly)
    first = plant.program().generation + 1
    for port in range(1, 6):
        with neighbour.write() as unit:
            put(ports(port))(unit)
        plant.control.loop.look_at("pop")
        assert began.wait(PATIENCE_S)
    go_on.set()
    until(lambda: plant.program().generation == first + 4)
    assert compiled == [first, first + 4]


def test_catching_up_with_another_process_takes_one_transaction(
    plant: Plant, neighbour: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that follows what others write does so at each of their commits."""
    begun: list[int] = []
    real = plant.store.read

    def counted() -> AbstractContextManager[Unit]:
        begun.append(threading.get_ident())
        return real()

    publisher, admission = Publisher(), Admission(Ceilings())
    maker = Maker(plant.store, Compiler(plant.metrics), publisher, Tiers(), Staging(), IdleHosts(), admission)
    maker.catch_up("pop")
    with neighbour.write() as unit:
        generation = put(ports(80))(unit).generation
    monkeypatch.setattr(plant.store, "read", counted)
    maker.catch_up("pop")
    program = publisher.program("pop")
    assert program is not None
    assert program.generation == generation
    assert begun.count(threading.get_ident()) == 1


def test_one_domain_that_does_not_compile_does_not_hold_up_others(
    plant: Plant, neighbour: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compiler_module.compile_host

    def sometimes(
        policy: Policy, *, domain: str, generation: int, lifted: tuple[LiftedRule, ...], cache: CompileCache
    ) -> Program:
        if domain == "bad":
            raise ValueError("a defect")
        return real(policy, domain=domain, generation=generation, lifted=lifted, cache=cache)

    monkeypatch.setattr(compiler_module, "compile_host", sometimes)
    with neighbour.write() as unit:
        for domain in ("bad", "good"):
            unit.domains.create(domain)
    for domain in ("bad", "good"):
        plant.control.loop.look_at(domain)
    until(lambda: plant.publisher.program("good") is not None)
    with pytest.raises(Busy):
        asyncio.run(plant.control.watches.watch("bad", None, 0.05, stored_generation=1))
    plant.control.check_ready("good")
    with pytest.raises(Busy, match="program of 'bad' is being compiled"):
        plant.control.check_ready("bad")
    with pytest.raises(NotFound):
        plant.control.check_ready("nowhere")


def test_a_store_that_is_away_for_a_moment_is_asked_again(
    plant: Plant, neighbour: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with neighbour.write() as unit:
        put(ports(80))(unit)
    stored = stored_generation(plant)
    read = plant.store.read
    failures = iter([True])

    def sometimes() -> AbstractContextManager[Unit]:
        if next(failures, False):
            raise Unreachable("the database is away")
        return read()

    monkeypatch.setattr(plant.store, "read", sometimes)
    monkeypatch.setattr("orchestrator.control.controlloop._RETRY_S", 0.05)
    plant.control.loop.look_at("pop")
    until(lambda: plant.program().generation == stored)


def test_a_domain_that_is_deleted_is_served_no_more(plant: Plant) -> None:
    plant.control.write(lambda unit: unit.domains.create("brief"))
    plant.control.loop.look_at("brief")
    until(lambda: plant.publisher.program("brief") is not None)
    plant.control.delete_domain("brief", lambda unit: unit.domains.delete("brief"))
    assert plant.publisher.program("brief") is None


# ---------------------------------------------------------------------------------------------------- expiry


def test_a_rule_goes_when_its_time_is_over(plant: Plant) -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.4)
    lasting = ports(443).rules
    short = ports(80, expires=soon.isoformat()).rules
    generation = plant.control.write(put(Acl((*short, *lasting)))).generation
    assert plant.program().generation == generation
    until(lambda: plant.program().generation > generation)
    assert dt.datetime.now(dt.UTC) > soon
    assert plant.control.read(lambda unit: unit.acls.current("all").acl.rules) == lasting


# ---------------------------------------------------------------------------------------------------- enforcement


def test_a_wait_sees_reports_of_other_processes(plant: Plant, neighbour: Store) -> None:
    """With `recheck_s` the wait looks again by itself."""
    with plant.store.write() as unit:
        unit.domains.add_host("pop", HostRecord("h1", 1, "up0"))
        token = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(hours=1), author="test")
        enforcer = unit.enforcers.enrol(token, name="c", kind="openflow").enforcer.id
        generation = unit.domains.get("pop").generation
    waiting = Enforcement(plant.store, plant.metrics, recheck_s=0.05)
    elsewhere = Enforcement(neighbour, Metrics())
    report = Report((PointReport("h1", generation, bytes(16), PointState.ENFORCED),))
    threading.Timer(0.1, lambda: elsewhere.report("pop", enforcer, report)).start()
    started = time.monotonic()
    assert asyncio.run(waiting.wait("pop", generation, PATIENCE_S)).done
    assert time.monotonic() - started < PATIENCE_S / 2


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    real = compiler_module.compile_host
    compiled: list[int] = []

    def counting(
        policy: Policy, *, domain: str, generation: int, lifted: tuple[LiftedRule, ...], cache: CompileCache
    ) -> Program:
        compiled.append(generation)
        return real(policy, domain=domain, generation=generation, lifted=lifted, cache=cache)

    monkeypatch.setattr(compiler_module, "compile_host", counting)
    return compiled


def too_large(policy: Policy, **_: object) -> Program:
    raise TooLarge(f"{len(policy.tenants)} tenants are too many today")

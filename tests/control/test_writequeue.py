"""Writes that wait for each other are carried out together, and everybody gets the answer that he would get alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control import writequeue
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.writequeue import (
    IDLE_S,
    LONG_S,
    MOST_SPACED_S,
    OTHERS,
    SPACING,
    Debts,
    Job,
    Jobs,
    NotCommitted,
    WriteQueue,
    Written,
)
from orchestrator.errors import Busy, NotFound, TooLarge, Unreachable
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.store import open_store
from orchestrator.store.unit import Unit

MANY = 12


class Plant:
    """A writing side with two domains, `d0` and `d1`, a tenant in turn in each."""

    def __init__(self, directory: Path) -> None:
        self.store = open_store(f"sqlite:///{directory / 'aclflow.db'}")
        self.control = Control(self.store, Compiler(Metrics()), Publisher())
        self.control.start()

        def everything(unit: Unit) -> None:
            for domain in ("d0", "d1"):
                unit.domains.create(domain)
            for number in range(MANY):
                prefixes = (Prefix.parse(f"10.{number}.0.0/16"),)
                unit.tenants.create(f"t{number}", name="", domain=f"d{number % 2}", prefixes=prefixes)

        self.control.write(everything)

    def generation(self, domain: str) -> int:
        return self.control.read(lambda unit: unit.domains.get(domain).generation)

    def rules(self, tenant: int) -> list[str]:
        return [rule.id for rule in self.control.read(lambda unit: unit.acls.current(f"t{tenant}").acl.rules)]

    def at_once(self, works: list[Callable[[Unit], Any]]) -> list[Any]:
        """Have all done by threads that begin while another write is under way; answers, or what was raised."""
        found: list[Any] = [None] * len(works)
        held, go = threading.Event(), threading.Event()

        def first(_: Unit) -> None:
            held.set()
            assert go.wait(30)

        def one(place: int) -> None:
            try:
                written = self.control.carry_out(works[place])
                found[place] = written.answer, dict(written.generations)
            except Exception as error:  # noqa: BLE001 -- looked at below
                found[place] = error

        threads = [threading.Thread(target=self.control.write, args=(first,))]
        threads[0].start()
        assert held.wait(30)
        threads += [threading.Thread(target=one, args=(place,)) for place in range(len(works))]
        for thread in threads[1:]:
            thread.start()
        while self.control.queue(None).waiting < len(works):
            go.wait(0.005)
        go.set()
        for thread in threads:
            thread.join(60)
        return found


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path)
    yield made
    made.control.stop()
    made.store.close()


def inserts(tenant: int, name: str) -> Callable[[Unit], int]:
    rule = Rule(RuleId(name), Action.PERMIT)
    return lambda unit: unit.acls.insert_rule(f"t{tenant}", rule, position=0, author="me").generation


def test_many_writes_are_one_generation_and_each_knows_what_it_moved(plant: Plant) -> None:
    before = {domain: plant.generation(domain) for domain in ("d0", "d1")}
    found = plant.at_once([inserts(tenant, "r") for tenant in range(MANY)])
    for tenant, (generation, moved) in enumerate(found):
        domain = f"d{tenant % 2}"
        assert moved == {domain: generation} == {domain: before[domain] + 1}
        assert plant.rules(tenant) == ["r"]


def test_several_writes_of_one_list_are_all_there(plant: Plant) -> None:
    found = plant.at_once([inserts(0, f"r{number}") for number in range(MANY)])
    assert len({generation for generation, _ in found}) == 1
    assert sorted(plant.rules(0)) == sorted(f"r{number}" for number in range(MANY))


def test_one_that_fails_fails_alone(plant: Plant) -> None:
    works = [inserts(tenant, "r") for tenant in range(MANY)]
    works[5] = inserts(99, "r")
    found = plant.at_once(works)
    assert isinstance(found[5], NotFound)
    assert [plant.rules(tenant) for tenant in range(MANY)] == [["r"] if tenant != 5 else [] for tenant in range(MANY)]
    others = [(tenant, each) for tenant, each in enumerate(found) if tenant != 5]
    assert all(moved == {f"d{tenant % 2}": answer} for tenant, (answer, moved) in others)


def test_what_does_not_compile_is_refused_alone(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Compiler.compile

    def compile_(self: Compiler, domain: str, snapshot: Any, **named: bool) -> Any:
        if any(rule.id == "large" for tenant in snapshot.policy.tenants for rule in tenant.acl.rules):
            raise TooLarge("too large")
        return whole(self, domain, snapshot, **named)

    monkeypatch.setattr(Compiler, "compile", compile_)
    found = plant.at_once([inserts(0, "r"), inserts(1, "large"), inserts(2, "r")])
    assert [type(each) for each in found] == [tuple, TooLarge, tuple]
    assert [plant.rules(tenant) for tenant in range(3)] == [["r"], [], ["r"]]


def test_a_commit_that_fails_is_told_to_all_and_nothing_is_done_twice() -> None:
    done: list[int] = []

    def carry(jobs: Jobs) -> list[Written[None]]:
        done.append(len(jobs))
        raise Unreachable("the connection broke")

    queue = WriteQueue(carry, 5.0)
    with pytest.raises(Unreachable):
        queue.do(lambda _: None)
    assert done == [1]


def test_whose_turn_does_not_come_is_told_to_try_again_and_nothing_of_his_is_done() -> None:
    begun, go = threading.Event(), threading.Event()
    carried: list[Job[Any]] = []

    def carry(jobs: Jobs) -> list[Written[None]]:
        carried.extend(jobs)
        begun.set()
        assert go.wait(30)
        return [Written(None, {}) for _ in jobs]

    queue = WriteQueue(carry, 0.05)
    thread = threading.Thread(target=queue.do, args=(lambda _: None,))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(Busy):
        queue.do(lambda _: None)
    go.set()
    thread.join(30)
    queue.do(lambda _: None)
    assert len(carried) == 2


def test_more_than_fit_are_carried_out_in_turns_and_alone_after_a_failure() -> None:
    sizes: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def carry(jobs: Jobs) -> list[Written[None]]:
        sizes.append(len(jobs))
        if len(sizes) == 1:
            begun.set()
            assert go.wait(30)
        elif len(jobs) == 3:
            raise NotCommitted(ValueError())
        return [Written(None, {}) for _ in jobs]

    queue = WriteQueue(carry, 30.0, most=3)
    threads = [threading.Thread(target=queue.do, args=(lambda _: None,)) for _ in range(8)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    while queue.waiting < 7:
        go.wait(0.005)
    go.set()
    for thread in threads:
        thread.join(30)
    assert sizes == [1, 3, 1, 1, 1, 3, 1, 1, 1, 1]


def test_a_list_is_put_and_changed_in_one_go(plant: Plant) -> None:
    put = Acl((Rule(RuleId("a"), Action.PERMIT),))
    found = plant.at_once([lambda unit: unit.acls.replace("t0", put, author="me").generation, inserts(0, "b")])
    assert sorted(plant.rules(0)) in (["a", "b"], ["a"])
    assert len(found) == 2


# ------------------------------------------------------------------------------------------- fairness among tenants


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


def test_a_long_turn_is_made_up_for_by_writes_of_others(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["blue"], 0.01)
    debts.charge(["red"], 10 * LONG_S)
    for done in range(OTHERS):
        assert debts.wait_s("red") > 0, f"after {done} writes of others"
        assert debts.is_alone("red")
        debts.charge([None if done % 2 else "blue"], 0.01)
    assert debts.wait_s("red") == 0.0
    assert debts.is_alone("red")
    assert debts.wait_s("blue") == debts.wait_s(None) == 0.0
    assert not debts.is_alone("blue")
    debts.charge(["red"], LONG_S / 2)
    assert not debts.is_alone("red"), "a short turn settles it"


def test_its_own_writes_do_not_make_up_for_it(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["blue"], 0.01)
    clock.now += 1.0
    debts.charge(["red"], 1.0)
    for _ in range(OTHERS):
        clock.now += 1.0
        debts.charge(["green"], 1.0)
    assert debts.wait_s("red") == pytest.approx(IDLE_S), "not at once after a long turn of another one"
    clock.now += IDLE_S
    assert debts.wait_s("red") == 0.0
    clock.now -= IDLE_S
    assert debts.wait_s("green") > 0


def test_a_tenant_that_is_alone_waits_for_nothing(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["red"], 5.0)
    debts.charge(["red"], 5.0)
    assert debts.wait_s("red") == 0.0
    debts.charge(["blue"], 0.01)
    assert debts.wait_s("red") == pytest.approx(IDLE_S)
    clock.now += IDLE_S
    assert debts.wait_s("red") == 0.0


def test_a_debt_is_over_after_a_time_whatever_others_do(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["red"], 2 * LONG_S)
    waited = 0.0
    while True:
        debts.charge(["blue"], 0.01)
        owed_s = debts.wait_s("red")
        if not owed_s:
            break
        step_s = min(owed_s, IDLE_S / 2)
        clock.now += step_s
        waited += step_s
    assert waited == pytest.approx(writequeue.TIMES * 2 * LONG_S)


def test_of_several_that_took_long_together_each_is_tried_alone(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["red", "blue"], 1.0)
    assert debts.is_alone("red")
    assert debts.is_alone("blue")
    assert debts.wait_s("red") == debts.wait_s("blue") == 0.0


def test_long_turns_of_many_tenants_take_a_quarter_of_the_time_while_others_write(clock: Time) -> None:
    debts, long = Debts(clock), 10 * LONG_S
    abusers = [f"abuser{number}" for number in range(100)]
    began, taken = clock.now, 0.0
    debts.charge(["other"], LONG_S / 10)
    for abuser in 3 * abusers:  # the first lists of tenants that have no debts yet, and what follows
        while wait_s := debts.wait_s(abuser, is_large=True):
            clock.now += min(wait_s, IDLE_S / 2)
            debts.charge(["other"], LONG_S / 10)
        assert not debts.wait_s("other"), "short writes of others wait for nobody"
        clock.now += long
        taken += long
        debts.charge([abuser], long)
    assert taken / (clock.now - began) == pytest.approx(1 / (1 + SPACING), rel=0.05)


def test_large_lists_wait_for_nobody_where_all_rest(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["other"], LONG_S / 10)
    clock.now += IDLE_S
    for tenant in ("red", "blue", "green"):
        assert not debts.wait_s(tenant, is_large=True)
        clock.now += 10 * LONG_S
        debts.charge([tenant], 10 * LONG_S)


def test_a_turn_after_several_long_ones_is_not_put_off_for_ever(clock: Time) -> None:
    debts = Debts(clock)
    debts.charge(["red"], 1000 * LONG_S)
    debts.charge(["other"], LONG_S / 10)
    assert 0 < debts.wait_s("blue", is_large=True) <= IDLE_S
    clock.now += MOST_SPACED_S
    debts.charge(["other"], LONG_S / 10)
    assert not debts.wait_s("blue", is_large=True)


def test_a_large_write_is_carried_out_alone_and_as_a_long_one() -> None:
    begun, go = threading.Event(), threading.Event()
    turns: list[tuple[list[str | None], bool]] = []

    def carry(jobs: Jobs) -> list[Written[None]]:
        turns.append(([job.payer for job in jobs], jobs[0].is_long))
        begun.set()
        assert go.wait(30)
        return [Written(None, {}) for _ in jobs]

    queue = WriteQueue(carry, 30.0)
    threads = [threading.Thread(target=queue.do, args=(lambda _: None, "first"))]
    threads[0].start()
    assert begun.wait(30)
    for payer, is_large in (("blue", False), ("red", True), ("green", False)):
        thread = threading.Thread(target=queue.do, args=(lambda _: None, payer), kwargs={"is_large": is_large})
        thread.start()
        threads.append(thread)
        while queue.waiting < len(threads) - 1:
            go.wait(0.005)
    go.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert turns == [(["first"], False), (["blue", "green"], False), (["red"], True)]


def test_long_writes_of_one_tenant_come_after_many_of_others(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writequeue, "OTHERS", 6)
    order: list[str | None] = []
    begun, go = threading.Event(), threading.Event()

    def carry(jobs: Jobs) -> list[Written[None]]:
        order.extend(job.payer for job in jobs)
        if jobs[0].payer == "red":
            assert len(jobs) == 1 or "red" not in order[:-1]
            clock.now += 10 * LONG_S
        if len(order) == 2:
            begun.set()
            assert go.wait(30)
        return [Written(None, {}) for _ in jobs]

    queue = WriteQueue(carry, 30.0, most=2, debts=Debts(clock))
    queue.do(lambda _: None, "red")
    threads = [threading.Thread(target=queue.do, args=(lambda _: None, "blue"))]
    threads[0].start()
    assert begun.wait(30)
    threads += [threading.Thread(target=queue.do, args=(lambda _: None, "red")) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    while queue.waiting < 2:
        go.wait(0.005)
    go.set()
    threads[0].join(30)
    for _ in range(11):
        queue.do(lambda _: None, "blue")
    for thread in threads[1:]:
        thread.join(30)
        assert not thread.is_alive()
    assert order == ["red", *["blue"] * 6, "red", *["blue"] * 6, "red"]

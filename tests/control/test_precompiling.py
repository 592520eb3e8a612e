"""Long lists are compiled in a process before their turn: with a deadline, and to the same programs."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

from orchestrator.compile.estimate import Estimate
from orchestrator.control import precompiling
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.precompiling import LongList, Places, Precompiler
from orchestrator.control.publisher import Publisher
from orchestrator.control.workbench import MEMORY_MIB, Work, Worker
from orchestrator.control.writequeue import WriteQueue
from orchestrator.errors import Busy, NotEquivalent, TooLarge, TooOften
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, AddressGroup, ReturnTraffic
from orchestrator.store import open_store

LONG = 200
"""From so many flow entries on a list is long here."""


class Counting(Precompiler):
    """Says which lists it was asked to try."""

    def __init__(self, limit_s: float = PATIENCE_S, *, memory_mib: int = MEMORY_MIB) -> None:
        super().__init__(limit_s, long_flows=LONG, memory_mib=memory_mib)
        self.tried: list[LongList] = []

    def try_list(self, long: LongList) -> None:
        self.tried.append(long)
        super().try_list(long)


class World:
    """Two tenants of a domain that is watched, so that it is compiled."""

    def __init__(self, path: Path, precompiler: Precompiler | None) -> None:
        self.store = open_store(f"sqlite:///{path}")
        self.publisher = Publisher()
        self.precompiler = precompiler
        self.control = Control(self.store, Compiler(Metrics()), self.publisher, precompiler=precompiler)

        def begin(unit):  # type: ignore[no-untyped-def]
            unit.domains.create("pop")
            for name, prefix in (("red", "10.1.0.0/16"), ("blue", "10.2.0.0/16")):
                unit.tenants.create(name, name="", domain="pop", prefixes=[Prefix.parse(prefix)])

        self.control.write(begin)
        self.control.start()

    def put(self, tenant: str, acl: Acl, *, is_said: bool = True) -> None:
        self.control.carry_out(
            lambda unit: unit.acls.replace(tenant, acl, author="test"),
            payer=tenant,
            puts=Estimate.of(acl) if is_said else None,
        )

    def version(self, tenant: str) -> int:
        return self.control.read(lambda unit: unit.acls.version(tenant))

    @property
    def digest(self) -> bytes:
        program = self.publisher.program("pop")
        assert program is not None
        return program.digest


@contextmanager
def opened(path: Path, precompiler: Precompiler | None) -> Iterator[World]:
    made = World(path, precompiler)
    try:
        until(lambda: made.publisher.program("pop") is not None)
        yield made
    finally:
        if precompiler is not None:
            precompiler.close()
        made.control.stop()
        made.store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path / "store.db", Counting()) as made:
        yield made


def tried(world: World) -> int:
    assert isinstance(world.precompiler, Counting)
    return len(world.precompiler.tried)


def of_rules(count: int, **more: object) -> Acl:
    rules = [
        {"id": f"r{at}", "action": "permit", "protocol": "tcp", "source": f"192.0.{at // 200}.{at % 200}/32", **more}
        for at in range(count)
    ]
    return acl_from_json({"rules": rules})


def processes() -> list[str]:
    return [each.name for each in multiprocessing.active_children() if each.name.startswith("list ")]


def refuse(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    raise NotEquivalent("not the list", place=f"tenants[{tenant}].acl")


def die(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    os._exit(1)


def die_once(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    mark = Path(os.environ["TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return 0


def wait_for_mark(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    """Work until a file is there; say by another that it began."""
    mark = Path(os.environ["TEST_MARK"])
    mark.with_suffix(f".{tenant}").touch()
    while not mark.exists():
        time.sleep(0.01)
    return 0


def go_on_for_ever(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    while True:
        pass


def test_a_long_list_is_compiled_in_a_process_once_and_then_written(world: World) -> None:
    world.put("red", of_rules(LONG))
    assert tried(world) == 1
    assert processes()
    assert world.version("red") == 1


def test_where_the_list_is_not_known_beforehand_its_turn_finds_it_out(world: World) -> None:
    world.put("red", of_rules(LONG), is_said=False)
    assert tried(world) == 1
    assert world.version("red") == 1


def test_short_lists_and_small_changes_of_long_ones_stay_in_the_service(world: World) -> None:
    world.put("blue", of_rules(LONG // 2))
    assert tried(world) == 0
    assert not processes()
    world.put("red", of_rules(LONG))
    (rule,) = of_rules(1).rules
    world.control.carry_out(lambda unit: unit.acls.delete_rule("red", rule.id, author="test"), payer="red")
    world.control.carry_out(lambda unit: unit.acls.insert_rule("red", rule, author="test", position=0), payer="red")
    assert world.version("red") == 3
    assert tried(world) == 1


def test_a_group_that_makes_a_list_long_is_found(world: World) -> None:
    def group(members: int) -> AddressGroup:
        prefixes = tuple(Prefix.parse(f"192.0.{at // 100}.{2 * (at % 100)}/32") for at in range(members))
        return AddressGroup("web", prefixes)

    world.control.write(lambda unit: unit.groups.put("red", group(1), author="test"))
    rule = {"id": "r", "action": "permit", "protocol": "tcp", "source": "@web"}
    groups = {"web": {"prefixes": ["192.0.0.0/32"]}}
    world.put("red", acl_from_json({"groups": groups, "rules": [rule]}))
    assert tried(world) == 0
    world.control.write(lambda unit: unit.groups.put("red", group(LONG), author="test"))
    assert tried(world) == 1


def test_a_list_that_its_turn_found_long_has_a_long_ones_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody said so beforehand, as where a group or an approval makes it long."""
    turns: list[bool] = []
    carry_out = WriteQueue.do

    def told(queue: WriteQueue, *work: Any, is_large: bool = False, **how: Any) -> Any:
        if "red" in work:
            turns.append(is_large)
        return carry_out(queue, *work, is_large=is_large, **how)

    monkeypatch.setattr(WriteQueue, "do", told)
    world.put("red", of_rules(LONG), is_said=False)
    assert turns == [False, True]


def test_programs_are_the_same_with_processes_and_without(tmp_path: Path) -> None:
    digests = []
    for name, precompiler in (("with", Counting()), ("without", None)):
        with opened(tmp_path / f"{name}.db", precompiler) as world:
            world.put("red", of_rules(LONG, destination_ports=["1-9"]))
            world.put("red", of_rules(LONG + 1))
            digests.append(world.digest)
    assert digests[0] == digests[1]


def test_a_list_that_takes_too_long_is_ended_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "store.db", Counting(limit_s=1.0)) as world:
        monkeypatch.setattr(precompiling, "compile_and_prove", go_on_for_ever)
        before = world.digest
        with pytest.raises(TooLarge, match=r"list of 'red'.* 1 s .*list_limit_s") as caught:
            world.put("red", of_rules(LONG))
        assert caught.value.place == "tenants[red].acl"
        assert world.version("red") == 0
        assert world.digest == before
        until(lambda: not processes())
        world.put("red", of_rules(2))
        assert world.version("red") == 1


def take_a_gib(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    return len(bytearray(1 << 30))


def test_a_list_that_takes_too_much_memory_is_ended_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "store.db", Counting(memory_mib=1024)) as world:
        before = world.digest
        with monkeypatch.context() as patched:
            patched.setattr(precompiling, "compile_and_prove", take_a_gib)
            with pytest.raises(TooLarge, match="more than 1024 MiB and was ended; nothing was changed") as caught:
                world.put("red", of_rules(LONG))
        assert caught.value.place == "tenants[red].acl"
        assert (world.version("red"), world.digest) == (0, before)
        world.put("red", of_rules(LONG))
        assert world.version("red") == 1


def test_a_list_that_a_process_refuses_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiling, "compile_and_prove", refuse)
    for is_said in (True, False):
        with pytest.raises(NotEquivalent, match="not the list"):
            world.put("red", of_rules(LONG), is_said=is_said)
    assert world.version("red") == 0


def test_a_process_that_ends_by_itself_is_tried_again_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(precompiling, "compile_and_prove", die_once)
    world.put("red", of_rules(LONG))
    assert world.version("red") == 1
    monkeypatch.setattr(precompiling, "compile_and_prove", die)
    with pytest.raises(Busy, match=r"'red' ended twice.*memory"):
        world.put("red", of_rules(LONG + 1))
    assert world.version("red") == 1
    monkeypatch.undo()
    world.put("red", of_rules(LONG + 1))
    assert world.version("red") == 2


def test_others_write_and_have_long_lists_while_one_takes_its_time(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("TEST_MARK", str(mark))
    monkeypatch.setattr(precompiling, "compile_and_prove", wait_for_mark)
    lists = [of_rules(LONG + more) for more in range(4)]
    with ThreadPoolExecutor(5) as threads:
        reds = [threads.submit(world.put, "red", acl) for acl in lists]
        try:
            until(lambda: mark.with_suffix(".red").exists())
            until(lambda: any(each.done() for each in reds))
            world.put("blue", of_rules(3))
            assert world.version("blue") == 1
            blue = threads.submit(world.put, "blue", of_rules(LONG))
            until(lambda: mark.with_suffix(".blue").exists())
        finally:
            mark.touch()
        refused = [error for each in reds if (error := each.exception(PATIENCE_S)) is not None]
        blue.result(PATIENCE_S)
    assert [type(each) for each in refused] == [TooOften]
    assert world.version("red") == 3
    assert world.version("blue") == 2


def test_of_those_who_wait_the_one_that_had_a_process_longest_ago_goes_first() -> None:
    """Tenants that send long lists one after the other do not keep a fourth one out."""
    places, came = Places(1), []
    for tenant in ("red", "green", "blue", "red"):
        assert places.take(tenant, 0)
        assert not places.take("grey", 0)
        places.give_back()
    assert places.take("grey", 0)

    def come(tenant: str) -> None:
        assert places.take(tenant, PATIENCE_S)
        came.append(tenant)
        places.give_back()

    with ThreadPoolExecutor(5) as threads:
        for number, tenant in enumerate(("red", "blue", "new", "green", "newer"), 1):
            threads.submit(come, tenant)
            until(lambda number=number: places.waiting == number)
        places.give_back()
    assert came == ["new", "newer", "green", "blue", "red"]
    assert places.take("grey", 0), "who gave up waiting took no place along"


def test_a_process_is_for_the_tenant_that_had_one_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    may_end = threading.Event()

    def take_time(_worker: Worker, work: Work, _deadline: float) -> None:
        order.append(str(work.arguments[0]))
        assert may_end.wait(PATIENCE_S)

    monkeypatch.setattr(Worker, "take", lambda _worker, _within_s: True)
    monkeypatch.setattr(Worker, "do", take_time)
    slow = Precompiler(PATIENCE_S, long_flows=LONG, processes=1)
    lists = [LongList(tenant, of_rules(1 + more), ReturnTraffic.ESTABLISHED)
             for more in range(2) for tenant in ("red", "green")]  # fmt: skip
    with ThreadPoolExecutor(5) as threads:
        done = [threads.submit(slow.try_list, each) for each in lists[:2]]
        until(lambda: len(order) == 1)
        may_end.set()
        for each in done:
            each.result(PATIENCE_S)
        may_end.clear()
        first = threads.submit(slow.try_list, lists[2])
        until(lambda: len(order) == 3)
        done = [threads.submit(slow.try_list, lists[3])]
        until(lambda: slow.waiting == 1)
        done.append(threads.submit(slow.try_list, LongList("blue", of_rules(1), ReturnTraffic.ESTABLISHED)))
        until(lambda: slow.waiting == 2)
        may_end.set()
        for each in (first, *done):
            each.result(PATIENCE_S)
    assert order[2:] == ["red", "blue", "green"]


def test_a_list_that_was_tried_stays_so_while_the_tenants_next_ones_are(world: World) -> None:
    """Else several that are put at once would be tried again and again, each for the others."""
    assert world.precompiler is not None
    lists = [LongList("red", of_rules(LONG + more), ReturnTraffic.ESTABLISHED) for more in range(4)]
    for each in lists:
        world.precompiler.try_list(each)
    assert all(world.precompiler.was_in_time(each) for each in lists)


def test_a_list_that_is_another_one_each_time_is_given_up(tmp_path: Path) -> None:
    class Forgetful(Counting):
        def was_in_time(self, long: LongList) -> bool:
            return False

    with opened(tmp_path / "store.db", Forgetful()) as world:
        with pytest.raises(Busy, match="all the time"):
            world.put("red", of_rules(LONG), is_said=False)
        assert world.version("red") == 0


def test_a_service_that_stops_ends_the_work(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("TEST_MARK", str(mark))
    monkeypatch.setattr(precompiling, "compile_and_prove", wait_for_mark)
    failed: list[BaseException] = []

    def put() -> None:
        try:
            world.put("red", of_rules(LONG))
        except Busy as error:
            failed.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    until(lambda: mark.with_suffix(".red").exists())
    assert world.precompiler is not None
    world.precompiler.close()
    thread.join(PATIENCE_S)
    assert len(failed) == 1
    assert not processes()

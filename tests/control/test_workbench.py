"""Work in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S, until
from strategies import acls

from orchestrator.control import workbench
from orchestrator.control.workbench import Workbench
from orchestrator.errors import AclflowError, BadInput, Busy, TooLarge
from orchestrator.policy.findings import Checks, check
from orchestrator.policy.formats.native import acl_from_json, acl_text
from orchestrator.policy.model import Acl


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    made = Workbench()
    yield made
    made.close()


def refuse(text: str) -> None:
    raise BadInput(f"'{text}' will not do", place="rules[3]")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(acl=acls())
def test_it_comes_to_the_same_as_here(bench: Workbench, acl: Acl) -> None:
    assert bench.run(PATIENCE_S, check, acl, Checks()) == check(acl, Checks())


def test_a_list_gets_there_whole(bench: Workbench) -> None:
    document = {
        "groups": {"web": {"prefixes": ["192.0.2.0/24"]}},
        "rules": [{"id": "r", "action": "permit", "source": "@web"}],
    }
    acl = acl_from_json(document)
    assert bench.run(PATIENCE_S, replace, acl) == acl
    assert bench.run(PATIENCE_S, replace, Acl()) == Acl()


def test_it_is_another_process_and_stays(bench: Workbench) -> None:
    first = bench.run(PATIENCE_S, os.getpid)
    assert first != os.getpid()
    assert bench.run(PATIENCE_S, os.getpid) == first


def test_an_error_comes_back_with_its_place(bench: Workbench) -> None:
    with pytest.raises(BadInput, match="will not do") as caught:
        bench.run(PATIENCE_S, refuse, "this")
    assert caught.value.place == "rules[3]"


def test_what_takes_too_long_is_ended(bench: Workbench) -> None:
    started = time.monotonic()
    with pytest.raises(TooLarge, match="too long"):
        bench.run(0.2, time.sleep, 2 * PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S
    assert bench.run(PATIENCE_S, abs, -3) == 3


def take(mib: int) -> int:
    return len(bytearray(mib << 20))


def test_what_takes_too_much_memory_is_ended() -> None:
    small = Workbench(memory_mib=512)
    try:
        first = small.judge(PATIENCE_S, os.getpid)
        with pytest.raises(TooLarge, match="more than 512 MiB of memory"):
            small.judge(PATIENCE_S, take, 512)
        assert small.judge(PATIENCE_S, take, 16) == 16 << 20
        assert small.judge(PATIENCE_S, os.getpid) != first, "what it held is gone with it"
    finally:
        small.close()


def test_it_gives_way_to_the_service(bench: Workbench) -> None:
    nicest = 19
    assert bench.run(PATIENCE_S, os.nice, 0) == min(os.nice(0) + workbench.NICER, nicest)
    assert workbench.NICER > 0


def test_a_process_that_dies_is_replaced(bench: Workbench) -> None:
    with pytest.raises(AclflowError, match="has ended"):
        bench.run(PATIENCE_S, die)
    assert bench.run(PATIENCE_S, abs, -3) == 3


def test_one_that_is_closed_while_its_process_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Workbench()
    begin, begun = SpawnProcess.start, []
    with ThreadPoolExecutor(1) as pool:

        def start(process: SpawnProcess) -> None:
            begun.append((process, pool.submit(made.close)))
            until(lambda: made.other.is_closed)
            begin(process)

        monkeypatch.setattr(SpawnProcess, "start", start)
        with pytest.raises(Busy, match="stopping"):
            made.run(PATIENCE_S, abs, -3)
        ((process, closing),) = begun
        closing.result(PATIENCE_S)
    assert not process.is_alive()


def test_findings_are_judged_where_they_are_remembered(bench: Workbench) -> None:
    judge = bench.judge(PATIENCE_S, os.getpid)
    assert bench.judge(PATIENCE_S, os.getpid) == judge
    assert bench.run(PATIENCE_S, os.getpid) != judge


def wait_for(over: Path, begun: Path) -> None:
    begun.touch()
    until(over.exists)


@contextmanager
def at_work(run: Callable[..., None], folder: Path, name: str) -> Iterator[None]:
    """One of its processes is at work until the block ends."""
    begun, over = folder / f"{name} has begun", folder / f"{name} is over"
    other = threading.Thread(target=run, args=(PATIENCE_S, wait_for, over, begun))
    other.start()
    until(begun.exists)
    try:
        yield
    finally:
        over.touch()
        other.join()


def test_who_comes_meanwhile_is_served_by_the_other(bench: Workbench, tmp_path: Path) -> None:
    with at_work(bench.run, tmp_path, "somebody"):
        assert bench.run(PATIENCE_S, abs, -3) == 3
        assert bench.judge(PATIENCE_S, abs, -3) == 3
    with at_work(bench.judge, tmp_path, "a judge"):
        assert bench.run(PATIENCE_S, abs, -3) == 3


def test_judgements_of_one_hold_up_no_other_judgement(bench: Workbench, tmp_path: Path) -> None:
    """Findings of a list that was made to take long: the next list's are found in the other process meanwhile."""
    judge = bench.judge(PATIENCE_S, os.getpid)
    with at_work(bench.judge, tmp_path, "a judge"):
        assert bench.judge(PATIENCE_S / 2, os.getpid) != judge
    assert bench.judge(PATIENCE_S, os.getpid) == judge


def test_who_must_wait_too_long_is_told(bench: Workbench, tmp_path: Path) -> None:
    with at_work(bench.judge, tmp_path, "a judge"), at_work(bench.run, tmp_path, "somebody"):
        for ask in (bench.run, bench.judge):
            with pytest.raises(Busy):
                ask(0.2, abs, -3)


def same(one: Acl, other: Acl) -> tuple[bool, int]:
    return one == other, id(one)


def test_a_list_that_was_sent_is_not_sent_again(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [acl_from_json({"rules": [{"id": f"r{number}", "action": "permit"}]}) for number in range(4)]
    sent: list[bytes] = []
    monkeypatch.setattr(workbench, "acl_text", lambda acl: sent.append(acl_text(acl)) or sent[-1])
    equal, where = bench.run(PATIENCE_S, same, lists[0], lists[0])
    assert equal
    assert bench.run(PATIENCE_S, same, lists[0], lists[1]) == (False, where)
    assert sent == [acl_text(lists[0]), acl_text(lists[1])]
    for each in lists[1:]:
        assert bench.run(PATIENCE_S, same, each, each)[0]
    assert bench.run(PATIENCE_S, same, lists[0], lists[3])[0] is False, "the one that both ends forgot comes anew"
    assert [*map(sent.count, map(acl_text, lists))] == [2, 1, 1, 1]


def test_a_list_that_is_asked_about_again_is_kept_at_both_ends(bench: Workbench) -> None:
    """As many as are kept, the first of them again, then one more: both ends forget the second, and not the first."""
    kept = workbench._LISTS
    lists = [acl_from_json({"rules": [{"id": f"k{number}", "action": "permit"}]}) for number in range(kept + 1)]
    for each in (*lists[:kept], lists[0], lists[kept], lists[0], lists[1]):
        assert bench.run(PATIENCE_S, texts, each, each) == (acl_text(each), acl_text(each))


@settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(known=st.lists(acls(), min_size=1, max_size=6), asked=st.lists(st.integers(0, 5), max_size=24))
def test_lists_are_the_same_at_both_ends(bench: Workbench, known: list[Acl], asked: list[int]) -> None:
    """However many there are, and in whatever order they are asked about."""
    for number in asked:
        one, other = known[number % len(known)], known[number // 2 % len(known)]
        assert bench.run(PATIENCE_S, texts, one, other) == (acl_text(one), acl_text(other))


def texts(one: Acl, other: Acl) -> tuple[bytes, bytes]:
    return acl_text(one), acl_text(other)


def test_a_process_that_is_new_has_no_lists(bench: Workbench) -> None:
    acl = acl_from_json({"rules": [{"id": "r", "action": "permit"}]})
    assert bench.run(PATIENCE_S, same, acl, acl)[0]
    with pytest.raises(AclflowError, match="has ended"):
        bench.run(PATIENCE_S, die)
    assert bench.run(PATIENCE_S, texts, acl, acl) == (acl_text(acl), acl_text(acl))

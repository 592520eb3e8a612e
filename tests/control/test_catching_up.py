"""The control loop: a domain that cannot be compiled is tried again, and holds up nobody."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest
from patience import until

from orchestrator.control import controlloop
from orchestrator.control.controlloop import CatchingUp
from orchestrator.control.duties import Duties
from orchestrator.control.maker import Maker
from orchestrator.control.pauses import Pauses
from orchestrator.control.staging import Staging
from orchestrator.store import open_store
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

T = TypeVar("T")
DOMAINS = ("d1", "d2")
FAILURES = 3


class Making:
    """What a maker is to the loop. It cannot make `d1` so many times."""

    domains = 0

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.written: str | None = None
        """The domain that a writer is at."""
        self.tried: list[str] = []
        self.made: list[str] = []

    def catch_up(self, domain: str, *, wait_s: float | None = None) -> bool:
        assert wait_s is not None
        self.tried.append(domain)
        if domain == self.written:
            return False
        if domain == "d1" and self.tried.count("d1") <= self._failures:
            raise ArithmeticError("a fault of ours")
        self.made.append(domain)
        return True


class Idle:
    """Nothing is ever due; it counts how often that is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def tick(self, _units: object) -> float:
        self.looks += 1
        return 3600.0


@contextmanager
def looping(
    folder: Path,
    making: Making,
    hosts: Mapping[str, int],
    chore: Idle | None = None,
    staging: Staging | None = None,
    duties: Duties | None = None,
) -> Iterator[CatchingUp]:
    """A loop over domains of so many hosts; it is not started yet."""
    store = open_store(f"sqlite:///{folder / 'store.db'}")
    numbers = itertools.count(1)
    with store.write() as unit:
        for domain, many in hosts.items():
            unit.domains.create(domain)
            for number in itertools.islice(numbers, many):
                unit.domains.add_host(domain, HostRecord(f"h{number}", number, "up"))

    class Units:
        def read(self, work: Callable[[Unit], T]) -> T:
            with store.read() as unit:
                return work(unit)

    chores, staging = [chore or Idle()], staging or Staging()
    units, pauses = Units(), Pauses(first_s=0.001)
    loop = CatchingUp(units, cast("Maker", making), staging, chores, pauses, duties)  # type: ignore[arg-type]
    try:
        yield loop
    finally:
        loop.stop()
        store.close()


@pytest.mark.parametrize("failures", [0, FAILURES])
def test_a_domain_that_does_not_compile_is_tried_again_without_a_change(tmp_path: Path, failures: int) -> None:
    making = Making(failures)
    with looping(tmp_path, making, dict.fromkeys(DOMAINS, 0)) as loop:
        loop.start()
        until(lambda: set(making.made) == set(DOMAINS))
    assert making.tried.count("d1") == failures + 1
    assert making.tried.count("d2") == 1


def test_a_domain_that_does_not_compile_holds_up_none_of_fifty(tmp_path: Path) -> None:
    making = Making(failures=1 << 30)
    sizes = {f"d{number}": 2 if number == 1 else 0 for number in range(1, 51)}  # it comes first
    with looping(tmp_path, making, sizes) as loop:
        loop.start()
        until(lambda: loop.has_started and making.tried.count("d1") > 1)
    assert making.tried[0] == "d1"
    assert sorted(making.made) == sorted(set(sizes) - {"d1"})


def test_a_start_begins_with_who_is_waited_for_and_then_with_the_largest(tmp_path: Path) -> None:
    making = Making(failures=0)
    with looping(tmp_path, making, {"a": 0, "b": 2, "c": 1, "d": 0, "e": 3}) as loop:
        loop.look_at("c")
        loop.look_at("a", first=True)
        loop.look_at("d", first=True)
        loop.start()
        until(lambda: loop.has_started)
    assert making.made == ["d", "a", "c", "e", "b"]


def test_a_change_elsewhere_lets_nobody_look_at_times(tmp_path: Path) -> None:
    """A service that is followed wakes at each; what has a time is in the store, and a look at it costs two reads."""
    making, chore = Making(failures=0), Idle()
    with looping(tmp_path, making, {"d2": 0}, chore) as loop:
        loop.start()
        until(lambda: chore.looks == 1)
        for _ in range(3):
            made = len(making.made)
            loop.look_at("d2")
            until(lambda made=made: len(making.made) > made)
        assert chore.looks == 1
        for way in (loop.look_at_times, loop.look_at_all):
            looks = chore.looks
            way()
            until(lambda looks=looks: chore.looks > looks)


def test_a_domain_whose_writer_is_at_work_keeps_no_other_waiting(tmp_path: Path) -> None:
    making, chore = Making(failures=0), Idle()
    with looping(tmp_path, making, {"d1": 2, "d2": 1, "d3": 0}, chore) as loop:
        making.written = "d1"
        loop.start()
        until(lambda: making.tried.count("d1") > 2)
        assert making.made == ["d2", "d3"]
        assert chore.looks == 1
        assert not loop.has_started, "what was found at the start is not all there"
        making.written = None
        until(lambda: loop.has_started)
    assert making.made == ["d2", "d3", "d1"]


class Owning(Duties):
    """Owns every domain, of which nobody follows one here."""

    def is_followed(self, domain: str) -> bool:
        return False


def test_a_domain_that_nobody_follows_is_made_once_it_rests_or_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlloop, "_AT_REST_S", 1.0)
    making = Making(failures=0)
    with looping(tmp_path, making, {"d2": 0}, duties=Owning()) as loop:
        loop.start()
        until(lambda: loop.has_started)
        for _ in range(30):
            loop.look_at_changed("d2")
            time.sleep(0.05)
        assert making.tried == ["d2"], "it rests for a twentieth of a second only"
        until(lambda: making.tried == ["d2", "d2"])
        monkeypatch.setattr(controlloop, "_MOST_BEHIND_S", 0.5)

        def change() -> bool:
            loop.look_at_changed("d2")
            return len(making.tried) == 3

        until(change)


class HeldBack(Staging):
    """Some domains are held at an intersection."""

    def __init__(self, domains: Iterable[str]) -> None:
        super().__init__()
        self._staged.update(dict.fromkeys(domains, 1))


def test_a_report_lets_nobody_look_at_other_domains_that_are_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads a domain's policy and hosts: with fifty held back, a report of one would cost fifty."""
    monkeypatch.setattr(controlloop, "_STAGED_LOOK_S", 3600.0)
    making, domains = Making(failures=0), [f"d{number}" for number in range(50)]
    with looping(tmp_path, making, dict.fromkeys(domains, 0), staging=HeldBack(domains)) as loop:
        loop.start()
        until(lambda: len(making.made) == 2 * len(domains))  # at the start, and then because they are held back
        for turn in range(20):
            loop.look_at_reported("d7")
            until(lambda turn=turn: making.made.count("d7") > 2 + turn)
        loop.look_at_reported("elsewhere")
    assert {making.made.count(each) for each in domains if each != "d7"} == {2}
    assert "elsewhere" not in making.made


def test_what_is_held_back_is_looked_at_again_without_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-back counts when it is old enough, and may have come to another service."""
    monkeypatch.setattr(controlloop, "_STAGED_LOOK_S", 0.01)
    making = Making(failures=0)
    with looping(tmp_path, making, dict.fromkeys(DOMAINS, 0), staging=HeldBack(["d2"])) as loop:
        loop.start()
        until(lambda: making.made.count("d2") > 5)
    assert making.made.count("d1") == 1


def test_pauses_double_until_they_are_a_minute_and_begin_anew_after_a_success() -> None:
    pauses = Pauses()
    assert [pauses.after_failure("d") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.after_failure("other") == 1
    pauses.over("d")
    assert "d" not in pauses
    assert pauses.after_failure("d") == 1

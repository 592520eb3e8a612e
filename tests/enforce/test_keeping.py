"""What was reported outlives whoever reported it: it is in the file before, and on the disk soon after."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from enforce.programs import program, rule

from orchestrator.enforce.programfiles import Keeper
from orchestrator.enforce.standing import Goal, same
from orchestrator.enforce.state import StateDir
from orchestrator.errors import Missing
from orchestrator.program.delta import Delta, between
from orchestrator.program.program import Program

VERSIONS = tuple(program([rule(number) for number in range(count)], generation=count + 1) for count in range(6))
DELTAS = tuple(between(old, new) for old, new in itertools.pairwise(VERSIONS))


def goal(version: int, since: int = 0) -> Goal:
    return Goal(VERSIONS[version], DELTAS[since:version])


def on_disk(path: Path) -> int | None:
    """The generation that a start would begin with."""
    kept = StateDir(path).program()
    return kept.generation if kept is not None else None


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    keeper = Keeper(StateDir(tmp_path), None)
    keeper.jot(goal(0))
    keeper.keep()
    return keeper


def test_what_follows_is_in_the_file_before_anybody_is_told(keeper: Keeper, tmp_path: Path) -> None:
    for version in range(1, 6):
        keeper.jot(goal(version))
        assert on_disk(tmp_path) == VERSIONS[version].generation
    keeper.keep()
    assert on_disk(tmp_path) == VERSIONS[5].generation


def test_what_does_not_follow_is_written_whole_soon_after(keeper: Keeper, tmp_path: Path) -> None:
    keeper.jot(Goal(VERSIONS[4]))
    assert on_disk(tmp_path) == VERSIONS[0].generation
    keeper.keep()
    assert on_disk(tmp_path) == VERSIONS[4].generation
    keeper.jot(goal(5, since=4))
    assert on_disk(tmp_path) == VERSIONS[5].generation


def test_a_generation_that_comes_to_one_program_after_another_is_replayed_to_the_last(tmp_path: Path) -> None:
    """A firewall server gets a generation again when it lets a tenant go: each is in the file, in its order."""
    programs = [
        replace(VERSIONS[rules], generation=at) for rules, at in ((0, 1), (1, 2), (2, 2), (0, 2), (3, 3), (1, 3))
    ]
    deltas = [between(old, new) for old, new in itertools.pairwise(programs)]
    keeper = Keeper(StateDir(tmp_path), None)
    for count, each in enumerate(programs):
        keeper.jot(Goal(each, tuple(deltas[:count])))
        kept = StateDir(tmp_path).program()
        assert kept is not None
        assert same(kept, each)
    assert (tmp_path / "deltas").exists()


class Killed(BaseException):
    """As SIGKILL would: nobody catches it."""


class Mortal(StateDir):
    """Whoever writes a whole program here is killed before, or right after."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        super().__init__(path)
        self.writes = writes

    def write(self, name: str, data: bytes) -> None:
        if self.writes:
            super().write(name, data)
        raise Killed


@pytest.mark.parametrize(("writes", "version"), [(False, 3), (True, 4)], ids=["before", "right after"])
def test_killed_while_a_whole_program_takes_the_place_of_deltas(
    keeper: Keeper, tmp_path: Path, writes: bool, version: int
) -> None:
    """A successor does not continue the deltas that it finds: they stay until the whole program is there, and then
    they lead nowhere."""
    keeper.jot(goal(3))
    successor = Keeper(Mortal(tmp_path, writes=writes), StateDir(tmp_path).program())
    successor.jot(goal(4, since=3))
    with pytest.raises(Killed):
        successor.keep()
    assert on_disk(tmp_path) == VERSIONS[version].generation


class Flaky(StateDir):
    """A disk that is full while `full` is set, and counts how often it was flushed."""

    full = False
    flushes = 0

    def keep_deltas(self, deltas: Iterable[Delta], *, flush: bool = True) -> bool:
        if self.full:
            raise Missing("no space left on device", place="deltas")
        return super().keep_deltas(deltas, flush=flush)

    def keep_program(self, program: Program) -> None:
        if self.full:
            raise Missing("no space left on device", place="program")
        super().keep_program(program)

    def flush_deltas(self) -> None:
        self.flushes += 1
        super().flush_deltas()


def test_a_full_disk_is_told_by_keep_and_made_good_later(tmp_path: Path) -> None:
    state = Flaky(tmp_path)
    keeper = Keeper(state, None)
    keeper.jot(goal(0))
    keeper.keep()
    state.full = True
    keeper.jot(goal(1))
    with pytest.raises(Missing, match="no space"):
        keeper.keep()
    state.full = False
    keeper.jot(goal(2))
    keeper.keep()
    assert on_disk(tmp_path) == VERSIONS[2].generation


def test_what_was_jotted_down_is_flushed_once(tmp_path: Path) -> None:
    state = Flaky(tmp_path)
    keeper = Keeper(state, None)
    keeper.jot(goal(0))
    keeper.keep()
    keeper.jot(goal(1))
    keeper.jot(goal(2))
    assert state.flushes == 0
    keeper.keep()
    keeper.keep()
    assert state.flushes == 1


def test_what_was_dropped_is_not_begun_with(keeper: Keeper, tmp_path: Path) -> None:
    keeper.jot(goal(1))
    keeper.drop()
    assert on_disk(tmp_path) is None
    keeper.jot(goal(2))
    keeper.keep()
    assert on_disk(tmp_path) == VERSIONS[2].generation

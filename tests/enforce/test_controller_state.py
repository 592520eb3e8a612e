"""What is kept on the disk survives a crash at any moment, and nobody else may read it."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

import pytest
from enforce.programs import program, rule

from orchestrator.client import Host
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.program.delta import between

ME = Credentials("pop1", 3, "aclflow_secret", 7)


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    hosts = (Host("host1", 0x11, "wan0"), Host("host2", 0x12, "wan1"))
    goal = program([rule(1)])
    state.keep_credentials(ME)
    state.keep_hosts(hosts)
    state.keep_program(goal)
    again = StateDir(tmp_path / "state")
    assert again.credentials() == ME
    assert again.hosts() == hosts
    kept = again.program()
    assert kept is not None
    assert (kept.digest, kept.generation, kept.flows.rows()) == (goal.digest, 1, goal.flows.rows())


VERSIONS = tuple(program([rule(number) for number in range(count)], generation=count + 1) for count in range(6))
DELTAS = [between(old, new) for old, new in itertools.pairwise(VERSIONS)]


def test_deltas_are_replayed_over_the_program(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[0])
    assert state.keep_deltas(DELTAS[:2])
    assert state.keep_deltas(DELTAS[2:])
    kept = StateDir(tmp_path).program()
    assert kept is not None
    assert (kept.digest, kept.generation) == (VERSIONS[-1].digest, VERSIONS[-1].generation)
    state.keep_program(VERSIONS[1])
    assert (held := StateDir(tmp_path).program()) is not None
    assert held.generation == 2


@pytest.mark.parametrize("cut", [1, 3, 30, -1])
def test_a_cut_off_delta_ends_the_replay(tmp_path: Path, cut: int) -> None:
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[0])
    state.keep_deltas(DELTAS[:2])
    before = (tmp_path / "deltas").read_bytes()
    state.keep_deltas(DELTAS[2:3])
    (tmp_path / "deltas").write_bytes((tmp_path / "deltas").read_bytes()[: cut if cut < 0 else len(before) + cut])
    kept = StateDir(tmp_path).program()
    assert kept is not None
    assert (kept.digest, kept.generation) == (VERSIONS[2].digest, 3)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_delta_that_is_damaged_before_others_makes_all_of_it_worthless(tmp_path: Path, at: int) -> None:
    """What was in force is not known then; a damage of the last looks as if it had been cut off."""
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[0])
    ends = []
    for delta in DELTAS[:3]:
        state.keep_deltas([delta])
        ends.append((tmp_path / "deltas").stat().st_size)
    journal = bytearray((tmp_path / "deltas").read_bytes())
    journal[ends[at] - 8] ^= 4
    (tmp_path / "deltas").write_bytes(journal)
    kept = StateDir(tmp_path).program()
    assert (kept.generation if kept is not None else None) == (3 if at == 2 else None)
    assert state.has_program


def test_another_generation_than_was_written_is_noticed(tmp_path: Path) -> None:
    """No digest has it, and a service raises its domain to what an enforcement point says that it holds."""
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[2])
    state.keep_deltas(DELTAS[2:3])
    for name in ("program", "deltas"):
        sound = (tmp_path / name).read_bytes()
        for bit in range(8 * len(sound)):
            wrong = bytearray(sound)
            wrong[bit // 8] ^= 1 << bit % 8
            (tmp_path / name).write_bytes(wrong)
            kept = StateDir(tmp_path).program()
            assert kept is None or kept.generation in (3, 4)
        (tmp_path / name).write_bytes(sound)


def test_a_program_that_cannot_be_read_is_as_good_as_damaged(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    (tmp_path / "program").mkdir()
    assert state.program() is None
    assert state.has_program


def test_a_crash_between_the_new_program_and_the_end_of_the_old_deltas_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[0])
    state.keep_deltas(DELTAS[:3])
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    state.keep_program(VERSIONS[4])
    monkeypatch.undo()
    kept = StateDir(tmp_path).program()
    assert kept is not None
    assert (kept.digest, kept.generation) == (VERSIONS[4].digest, 5)


def test_a_start_or_a_long_journal_asks_for_a_whole_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDir(tmp_path)
    assert not state.keep_deltas(DELTAS[:1])
    monkeypatch.setattr("orchestrator.enforce.state.LEAST_JOURNAL", 1000)
    state.keep_program(VERSIONS[0])
    kept = 0
    while state.keep_deltas([DELTAS[0]]):
        kept += 1
    assert 1 <= kept < 20


def test_a_full_disk_leaves_no_half_delta_to_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDir(tmp_path)
    state.keep_program(VERSIONS[0])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Missing, match="No space left"):
        state.keep_deltas(DELTAS[:1])
    monkeypatch.undo()
    assert not state.keep_deltas(DELTAS[1:2])


def test_an_empty_directory_knows_nothing(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert (state.credentials(), state.hosts(), state.program()) == (None, (), None)


def test_every_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    mask = os.umask(0)
    try:
        state.keep_credentials(ME)
        state.keep_program(program([]))
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert modes == {"credentials.json": 0o600, "program": 0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@pytest.mark.parametrize("when", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    state = StateDir(tmp_path)
    state.keep_credentials(ME)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*((os, "fsync", crash) if when == "fsync" else (Path, "replace", crash)))
    with pytest.raises(KeyboardInterrupt):
        state.keep_credentials(Credentials("pop1", 3, "aclflow_other", 8))
    monkeypatch.undo()
    assert StateDir(tmp_path).credentials() == ME
    state.keep_credentials(Credentials("pop1", 3, "aclflow_other", 8))
    assert StateDir(tmp_path).credentials() == Credentials("pop1", 3, "aclflow_other", 8)


def test_the_disk_has_it_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush, rename, flush the directory: in this order a power cut loses nothing that was acknowledged."""
    order: list[str] = []
    flush, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("flush"), flush(fd))[1])
    monkeypatch.setattr(Path, "replace", lambda path, target: (order.append("rename"), rename(path, target))[1])
    StateDir(tmp_path).keep_credentials(ME)
    assert order == ["flush", "rename", "flush"]


def test_damaged_memory_is_no_memory_but_damaged_credentials_are_told(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    for name in ("program", "hosts.json", "credentials.json"):
        (tmp_path / name).write_bytes(b'{"cut')
    assert (state.hosts(), state.program()) == ((), None)
    with pytest.raises(BadInput, match="remove it and enrol again") as caught:
        state.credentials()
    assert str(caught.value.place) == str(tmp_path / "credentials.json")


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Missing, match="file/state: cannot be made"):
        StateDir(tmp_path / "file" / "state")


def test_a_full_disk_is_told_and_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDir(tmp_path)
    state.keep_credentials(ME)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Missing, match="No space left on device"):
        state.keep_credentials(Credentials("pop1", 3, "aclflow_other", 8))
    assert state.credentials() == ME


def test_two_that_run_are_not_one(tmp_path: Path) -> None:
    """A second agent beside one that runs would take its name and go, and nobody would hear the first any more."""
    first, second = StateDir(tmp_path), StateDir(tmp_path)
    first.hold()
    with pytest.raises(Conflict, match="another process that runs"):
        second.hold()
    StateDir(tmp_path / "another").hold()

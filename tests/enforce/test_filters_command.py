"""Running a packet filter's programs for real: what goes wrong is told by what the caller can do about it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import until

from orchestrator.enforce.drivers.filters import command
from orchestrator.enforce.drivers.filters.command import run
from orchestrator.errors import Missing, Refused, Unreachable


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """This process may open nothing more in here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    holes = []
    try:
        while True:
            try:
                holes.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for hole in holes:
            os.close(hole)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_it_prints_is_given_and_what_it_complains_of_is_told() -> None:
    assert run(["cat"], "a table\n") == "a table\n"
    with pytest.raises(Refused, match=r"^sh: line 3: no such chain$"):
        run(["sh", "-c", "printf 'line 3:\\n  no such chain\\n' >&2; exit 2"], "")
    with pytest.raises(Refused) as told:
        run(["sh", "-c", "yes complaint | head -n 100000 >&2; exit 1"], "")
    assert len(str(told.value)) < 2100


def test_what_this_machine_lacks_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="there is no program 'nft-of-another-world' here"):
        run(["nft-of-another-world"], "")
    tool = tmp_path / "nft"
    tool.write_text("#!/bin/sh\n")
    with pytest.raises(Missing, match=r"'.*/nft' may not be run here"):
        run([str(tool)], "")


def test_what_cannot_begin_or_does_not_end_may_work_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_descriptors_left(), pytest.raises(Unreachable, match=r"^cat cannot be run: Too many open files$"):
        run(["cat"], "")
    assert run(["cat"], "as before") == "as before"
    monkeypatch.setattr(command, "PATIENCE_S", 0.05)
    with pytest.raises(Unreachable, match=r"^sleep did not end within 0 s$"):
        run(["sleep", "60"], "")


_TAKES_ITS_TIME = """
import sys
from orchestrator.enforce.drivers.filters.command import run
script = 'cd "$0"; touch begun; sleep 1; cat > .words; mv .words words'
run(["sh", "-c", script, sys.argv[1]], "a line of a script\\n" * 100_000)
"""


def test_what_a_killed_caller_began_reads_all_or_nothing(tmp_path: Path) -> None:
    """Half of a script would be half of a list."""
    caller = subprocess.Popen([sys.executable, "-c", _TAKES_ITS_TIME, str(tmp_path)])
    until((tmp_path / "begun").exists)
    caller.kill()
    caller.wait()
    until((tmp_path / "words").exists)
    assert (tmp_path / "words").read_text() == "a line of a script\n" * 100_000

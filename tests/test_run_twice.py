"""`tests/run-twice`: a second try for few tests that failed beside others, told by name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

RUN_TWICE = Path(__file__).parent / "run-twice"
PASSES = "def test_it(): pass\n"
FAILS = "def test_it(): assert 0\n"
FAILS_AT_FIRST = """
from pathlib import Path

def test_it():
    seen = Path(__file__).with_suffix(".seen")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen
"""


@pytest.mark.parametrize(
    ("bodies", "status", "told"),
    [
        ([PASSES, FAILS], 1, []),
        ([PASSES, *[FAILS_AT_FIRST] * 3], 0, [f"test_{number}.py::test_it" for number in (1, 2, 3)]),
        ([FAILS_AT_FIRST] * 4, 1, []),
        (["does not compile"], 2, []),
    ],
)
def test_few_are_tried_again(tmp_path: Path, bodies: list[str], status: int, told: list[str]) -> None:
    for number, body in enumerate(bodies):
        (tmp_path / f"test_{number}.py").write_text(body)
    command = [RUN_TWICE, "-q", "-p", "no:xdist", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    _, is_told, names = done.stdout.partition("which is a race:\n")
    assert (names.split() if is_told else []) == told

"""A library that is not installed is asked for by its extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.errors import Missing
from orchestrator.extras import needs_extra


def test_a_library_that_is_not_there_is_asked_for_by_its_extra() -> None:
    with (
        pytest.raises(Missing, match=r"drawing plots needs no_such_library: pip install 'aclflow\[bench\]'"),
        needs_extra("bench", "drawing plots"),
    ):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401, PLC0415


def test_where_the_wheel_brought_a_lock_it_is_installed_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    lock = tmp_path / "share/aclflow/requirements/console.txt"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with (
        pytest.raises(Missing, match=f"the console needs no_such_library: pip install --require-hashes -r {lock}"),
        needs_extra("console", "the console"),
    ):
        import no_such_library  # noqa: F401, PLC0415

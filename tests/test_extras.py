"""A library that is not installed is asked for by its extra."""

from __future__ import annotations

import pytest

from orchestrator.errors import Missing
from orchestrator.extras import needs_extra


def test_a_library_that_is_not_there_is_asked_for_by_its_extra() -> None:
    with (
        pytest.raises(Missing, match=r"drawing plots needs no_such_library: pip install 'aclflow\[bench\]'"),
        needs_extra("bench", "drawing plots"),
    ):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401, PLC0415

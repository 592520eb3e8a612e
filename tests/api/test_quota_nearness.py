"""When a tenant is told to be near a quota."""

from __future__ import annotations

import pytest

from orchestrator.wire.status import is_near


@pytest.mark.parametrize(
    ("used", "limit", "near"),
    [(6, 7, True), (4, 5, True), (3, 5, False), (1, 2, True), (0, 1, False), (1, 1, True), (0, 0, True), (0, 2, False),
     (80, 100, True), (79, 100, False), (9, 8, True)],
)  # fmt: skip
def test_small_quotas_count_too(used: int, limit: int, near: bool) -> None:
    assert is_near(used, limit) is near

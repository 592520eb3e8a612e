"""Where tenants are is remembered of those that wrote latest, and of no more than so many."""

from __future__ import annotations

import pytest

from orchestrator.control import units
from orchestrator.control.units import Homes


def test_the_tenant_that_has_not_written_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MOST_HOMES", 2)
    homes = Homes()
    homes.keep("a", "pop")
    homes.keep("b", "pop")
    assert homes.find("a") == "pop"
    homes.keep("c", "west")
    assert [homes.find(each) for each in "abc"] == ["pop", None, "west"]
    for number in range(100):
        homes.keep(f"t{number}", "pop")
    assert sum(homes.find(each) is not None for each in ("a", "c", *(f"t{number}" for number in range(100)))) == 2


def test_a_tenant_that_moved_is_kept_once_where_it_is_now() -> None:
    homes = Homes()
    homes.keep("a", "pop")
    homes.keep("a", "west")
    assert homes.find("a") == "west"
    homes.forget("a")
    homes.forget("a")
    assert homes.find("a") is None

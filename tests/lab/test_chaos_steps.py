"""Steps at which a chaos run ends a process are functions that exist."""

from __future__ import annotations

import pkgutil

import pytest

from orchestrator.lab.chaos.steps import STEPS


@pytest.mark.parametrize("function", sorted({each for steps in STEPS.values() for each in steps.values()}))
def test_each_step_is_a_function(function: str) -> None:
    assert callable(pkgutil.resolve_name(function))

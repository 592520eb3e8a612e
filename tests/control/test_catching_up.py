"""The control loop: a domain that cannot be compiled is tried again, and holds up nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import pytest
from patience import until

from orchestrator.control.catchingup import CatchingUp
from orchestrator.control.maker import Maker
from orchestrator.control.pauses import Pauses
from orchestrator.control.staging import Staging
from orchestrator.store import open_store
from orchestrator.store.unit import Unit

T = TypeVar("T")
DOMAINS = ("d1", "d2")
FAILURES = 3


class Making:
    """What a maker is to the loop. It cannot make `d1` so many times."""

    domains = 0

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.tried: list[str] = []
        self.made: list[str] = []

    def catch_up(self, domain: str) -> None:
        self.tried.append(domain)
        if domain == "d1" and self.tried.count("d1") <= self._failures:
            raise ArithmeticError("a fault of ours")
        self.made.append(domain)


class Idle:
    """Nothing is ever due."""

    def tick(self, _units: object) -> float:
        return 3600.0


@pytest.mark.parametrize("failures", [0, FAILURES])
def test_a_domain_that_does_not_compile_is_tried_again_without_a_change(tmp_path: Path, failures: int) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    with store.write() as unit:
        for domain in DOMAINS:
            unit.domains.create(domain)

    class Units:
        def read(self, work: Callable[[Unit], T]) -> T:
            with store.read() as unit:
                return work(unit)

    making = Making(failures)
    loop = CatchingUp(Units(), cast("Maker", making), Staging(), [Idle()], Pauses(first_s=0.001))  # type: ignore[arg-type]
    loop.start()
    try:
        until(lambda: set(making.made) == set(DOMAINS))
    finally:
        loop.stop()
        store.close()
    assert making.tried.count("d1") == failures + 1
    assert making.tried.count("d2") == 1


def test_pauses_double_until_they_are_a_minute_and_begin_anew_after_a_success() -> None:
    pauses = Pauses()
    assert [pauses.after_failure("d") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pauses.after_failure("other") == 1
    pauses.over("d")
    assert "d" not in pauses
    assert pauses.after_failure("d") == 1

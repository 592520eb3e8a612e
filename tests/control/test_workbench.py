"""Work in a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from patience import PATIENCE_S, until
from strategies import acls

from orchestrator.control.workbench import Workbench
from orchestrator.errors import AclflowError, BadInput, Busy, TooLarge
from orchestrator.policy.findings import Checks, check
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    made = Workbench()
    yield made
    made.close()


def refuse(text: str) -> None:
    raise BadInput(f"'{text}' will not do", place="rules[3]")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(acl=acls())
def test_it_comes_to_the_same_as_here(bench: Workbench, acl: Acl) -> None:
    assert bench.run(PATIENCE_S, check, acl, Checks()) == check(acl, Checks())


def test_a_list_gets_there_whole(bench: Workbench) -> None:
    document = {
        "groups": {"web": {"prefixes": ["192.0.2.0/24"]}},
        "rules": [{"id": "r", "action": "permit", "source": "@web"}],
    }
    acl = acl_from_json(document)
    assert bench.run(PATIENCE_S, replace, acl) == acl
    assert bench.run(PATIENCE_S, replace, Acl()) == Acl()


def test_it_is_another_process_and_stays(bench: Workbench) -> None:
    first = bench.run(PATIENCE_S, os.getpid)
    assert first != os.getpid()
    assert bench.run(PATIENCE_S, os.getpid) == first


def test_an_error_comes_back_with_its_place(bench: Workbench) -> None:
    with pytest.raises(BadInput, match="will not do") as caught:
        bench.run(PATIENCE_S, refuse, "this")
    assert caught.value.place == "rules[3]"


def test_what_takes_too_long_is_ended(bench: Workbench) -> None:
    started = time.monotonic()
    with pytest.raises(TooLarge, match="too long"):
        bench.run(0.2, time.sleep, 2 * PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S
    assert bench.run(PATIENCE_S, abs, -3) == 3


def test_a_process_that_dies_is_replaced(bench: Workbench) -> None:
    with pytest.raises(AclflowError, match="has ended"):
        bench.run(PATIENCE_S, die)
    assert bench.run(PATIENCE_S, abs, -3) == 3


def test_who_must_wait_too_long_is_told(bench: Workbench, tmp_path: Path) -> None:
    bench.run(PATIENCE_S, abs, 1)
    over = tmp_path / "over"
    other = threading.Thread(target=lambda: bench.run(PATIENCE_S, until, over.exists))
    other.start()
    until(bench._turn.locked)
    with pytest.raises(Busy):
        bench.run(0.2, abs, -3)
    over.touch()
    other.join()

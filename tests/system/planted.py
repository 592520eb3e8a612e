"""Runs `aclflow` as a chaos run does, with a bug planted: python planted.py NAME serve ...

forgets     the service acknowledges one write in three without committing it
hasty       the service publishes a program before it is committed
two-steps   the controller removes rows first, and adds others in a second bundle
ages        the service starts once, and then no more
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.control.maker import Maker
from orchestrator.enforce.changing import Changing
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.lab.chaos import steps
from orchestrator.program.delta import Delta
from orchestrator.store import Store
from orchestrator.store.unit import Unit


def forgets() -> None:
    commit, count = Store._commit, itertools.count()  # the one place that both kinds of writes pass

    class Nothing:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def commit(self) -> None:
            self._connection.rollback()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    def forgotten(self: Store, tx: Any) -> Any:
        if tx.generations and next(count) > 12 and not next(count) % 3:
            tx.connection = Nothing(tx.connection)
        return commit(self, tx)

    Store._commit = forgotten  # type: ignore[method-assign]


def hasty() -> None:
    made = Maker.make_step

    def early(self: Maker, unit: Unit, domain: str, *how: Any) -> Any:
        step = made(self, unit, domain, *how)
        if step is not None:
            self.publish(domain, step)
        time.sleep(0.3)
        return step

    Maker.make_step = early  # type: ignore[method-assign]


def two_steps() -> None:
    change, apply = OpenFlowDriver.change, OpenFlowDriver.apply

    def parts(delta: Delta) -> tuple[Delta, Delta]:
        nothing, nobody = (table.take(np.zeros(len(table), bool)) for table in (delta.added, delta.removed))
        return dataclasses.replace(delta, added=nothing), dataclasses.replace(delta, removed=nobody)

    def changed(self: OpenFlowDriver, delta: Delta, stamp: Any) -> Changing:
        first, second = parts(delta)
        yield from change(self, first, stamp)
        time.sleep(0.05)
        return (yield from change(self, second, stamp))

    def applied(self: OpenFlowDriver, delta: Delta, stamp: Any) -> None:
        for part in parts(delta):
            apply(self, part, stamp)
            time.sleep(0.05)

    OpenFlowDriver.change, OpenFlowDriver.apply = changed, applied  # type: ignore[method-assign]


def ages() -> None:
    if sys.argv[1] != "serve":
        return
    started = Path(os.environ[steps.STEP_FILE]).with_name("started")
    if started.exists():
        sys.exit("the store has another schema than this program")
    started.touch()


BUGS = {"forgets": forgets, "hasty": hasty, "two-steps": two_steps, "ages": ages}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    steps.main()

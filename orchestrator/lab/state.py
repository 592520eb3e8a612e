"""A lab's state on disk, so that other processes can find, use and remove it.

One JSON file in the run directory, replaced as a whole by renaming. Clean-up does not depend on it (names and marks
suffice); it is there for `status`, `exec` and fault tests.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.errors import NotFound
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import Management
from orchestrator.lab.processes import Process
from orchestrator.lab.spec import PopSpec
from orchestrator.lab.specfile import dump, parse


@dataclass(frozen=True, slots=True)
class State:
    """A lab's present description, with moved endpoints, and the service's URL once it runs."""

    spec: PopSpec
    management: Management
    processes: tuple[Process, ...] = ()
    api: str | None = None

    def process(self, name: str) -> Process:
        """Return a process by its name. Raises NotFound."""
        for process in self.processes:
            if process.name == name:
                return process
        raise NotFound(f"this lab started no process '{name}'")

    def having(self, process: Process) -> State:
        """Return the state with a process started, or started again."""
        others = tuple(other for other in self.processes if other.name != process.name)
        return replace(self, processes=(*others, process))


def create(layout: Layout, state: State) -> None:
    """Write the state file of a lab that is being built."""
    document = {
        "description": dump(state.spec),
        "management": {"controller": state.management.controller, "switches": state.management.switches},
        "processes": [{"name": p.name, "pid": p.pid, "started": p.started} for p in state.processes],
        "api": state.api,
    }
    fresh = layout.state_file.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1))
    fresh.replace(layout.state_file)


def update(layout: Layout, state: State) -> None:
    """Replace the state file at once.

    Raises NotFound where the lab was removed.
    """
    read(layout)
    create(layout, state)


def read(layout: Layout) -> State:
    """Read the state file.

    Raises NotFound where there is no lab, or one killed before it could write.
    """
    try:
        document = json.loads(layout.state_file.read_text())
    except FileNotFoundError:
        raise NotFound(f"there is no lab with the prefix '{layout.prefix}': start one with `aclflow lab up`") from None
    return State(
        spec=parse(document["description"]),
        management=Management(**document["management"]),
        processes=tuple(Process(**process) for process in document["processes"]),
        api=document["api"],
    )


@contextmanager
def only_one(layout: Layout) -> Iterator[None]:
    """Let builders and removers take turns on a machine; a killed one's turn ends."""
    layout.runs.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(layout.runs / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

"""Run `aclflow` so that it can end itself at a named step like a crash.

    python -m orchestrator.lab.chaos.steps serve ...

The file that CHAOS_STEP names holds command and step at which to end, or is not there. A step is the moment before or
after a function of the program; the functions are declared here, by the names that the documents use for them.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

STEP_FILE = "CHAOS_STEP"

STEPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "serve": {
            "edit": "orchestrator.control.control:Control._edit",
            "make": "orchestrator.control.maker:Maker.make_step",
            "prove": "orchestrator.control.compiler:Compiler.compile",
            "commit": "orchestrator.control.control:Control._commit",
            "store": "orchestrator.store.engine:Store._commit",
            "publish": "orchestrator.control.control:Control._publish",
            "tell": "orchestrator.store.engine:Store.tell",
        },
        "controller": {
            "note": "orchestrator.enforce.programfiles:Keeper.jot",
            "keep": "orchestrator.enforce.programfiles:Keeper.keep",
            "observe": "orchestrator.enforce.drivers.openflow.driver:OpenFlowDriver.observe",
            "apply": "orchestrator.enforce.drivers.openflow.driver:OpenFlowDriver.apply",
            "change": "orchestrator.enforce.drivers.openflow.driver:OpenFlowDriver._evaluate_answers",
            "send": "orchestrator.enforce.drivers.openflow.channel:StreamChannel._write",
            "report": "orchestrator.enforce.report:Reporter.point",
        },
        "agent": {
            "note": "orchestrator.enforce.programfiles:Keeper.jot",
            "keep": "orchestrator.enforce.programfiles:Keeper.keep",
            "transaction": "orchestrator.enforce.drivers.nftables.tool:NftTool.write",
            "report": "orchestrator.enforce.report:Reporter.point",
        },
    }
)
"""For each command, the steps of its work and the functions that they are."""


def names_of(command: str) -> tuple[str, ...]:
    """Return every moment at which a command's process can be made to end."""
    return tuple(f"{when} {step}" for step in STEPS[command] for when in ("before", "after"))


def install(command: str, file: Path) -> None:
    """Have the functions of a command's steps look whether to end."""
    for step, place in STEPS.get(command, {}).items():
        module, _, path = place.partition(":")
        owner, _, name = path.rpartition(".")
        holder = getattr(importlib.import_module(module), owner)
        setattr(
            holder,
            name,
            _end_around(f"{command} before {step}", f"{command} after {step}", getattr(holder, name), file),
        )


def _end_around(before: str, after: str, function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_between_ends(*arguments: Any, **named: Any) -> Any:
        _end_process_at(before, file)
        result = function(*arguments, **named)
        _end_process_at(after, file)
        return result

    return call_between_ends


def _end_process_at(step: str, file: Path) -> None:
    try:
        if file.read_text() != step:
            return
        file.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the program."""
    install(sys.argv[1], Path(os.environ[STEP_FILE]))
    runpy.run_module("orchestrator.cli", run_name="__main__")


if __name__ == "__main__":
    main()

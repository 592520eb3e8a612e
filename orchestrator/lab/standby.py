"""Spare agents: processes that have loaded `aclflow agent` and wait for their VNF.

A VNF of a lab is a namespace, which is there at once; its agent is a Python program, which takes the better part of a
second of processor time to load, and that when the machine is busy, for else no VNF would be wanted. So some are
loaded beforehand, with the lowest priority, as a cloud keeps images beside its hosts.

    service ── pipe ──▶ `cli/standby.py`: loads, reads a line: namespace, log, settings, arguments ──▶ is the agent

One that waits ends when the pipe does, which is when the service does, however it ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from orchestrator.lab import processes
from orchestrator.lab.processes import Process

_COMMAND = (sys.executable, "-m", "orchestrator.cli.standby")


@dataclass(frozen=True, slots=True)
class Order:
    """Where an agent is wanted: its network namespace, its log, its settings (``ACLFLOW_...``), its arguments."""

    namespace: str
    log: str
    settings: Mapping[str, str]
    arguments: tuple[str, ...]

    @property
    def line(self) -> bytes:
        """The order as a line of text."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, line: str) -> Self:
        """Read an order from its line."""
        told = json.loads(line)
        return cls(told["namespace"], told["log"], told["settings"], tuple(told["arguments"]))


@dataclass(slots=True)
class AtHand:
    """So many processes that wait. Not safe between threads."""

    mark: Path
    log: Path
    most: int
    waiting: deque[tuple[Process, int]] = field(default_factory=deque)

    def fill(self) -> None:
        """Have as many as there should be."""
        while len(self.waiting) < self.most:
            reading, writing = os.pipe()
            try:
                process = processes.spawn("standby", _COMMAND, mark=self.mark, log=self.log, stdin=reading)
            finally:
                os.close(reading)
            self.waiting.append((process, writing))

    def send_order(self, name: str, order: Order) -> Process | None:
        """The process that has become the agent; None where none waits any more."""
        while self.waiting:
            process, pipe = self.waiting.popleft()
            try:
                if processes.alive(process):
                    os.write(pipe, order.line)
                    return replace(process, name=name)
            except BrokenPipeError:
                continue
            finally:
                os.close(pipe)
        return None

    def close(self) -> None:
        """End those that wait."""
        while self.waiting:
            process, pipe = self.waiting.popleft()
            os.close(pipe)
            processes.kill(process)

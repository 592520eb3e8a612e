"""The interface of a compute device: compile programs, keep tables, run batches in lanes.

    lane 0   copy in ─▶ launch ─▶ copy out            a lane is a queue of its own with pinned memory at this end and
    lane 1             copy in ─▶ launch ─▶ copy out  memory of the device at the other, so the copies of one batch
                                                      overlap with the launches of another

`opencl.py` and `cuda.py` say the same verbs in their library's words. A device that says no raises Refused, one without
the memory for something TooLarge; nothing else is raised for what a device or its driver does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.classify.devices.tables import U32


@dataclass(frozen=True, slots=True)
class Limits:
    """A device's limits, in bytes and items."""

    memory_bytes: int
    constant_bytes: int
    local_bytes: int
    group_items: int
    units: int
    """Multiprocessors, compute units, cores."""


class Memory(Protocol):
    """A table on a device."""

    @property
    def nbytes(self) -> int: ...


class Program(Protocol):
    """A compiled program on its device."""

    def with_constant(self, words: U32) -> tuple[Program, Memory]:
        """Keep rows in constant memory, and the program that reads them there.

        Raises TooLarge and Refused.
        """


Argument = Any
"""Of a kernel: a `Memory` of the same device, or a number of 32 bits."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel: `groups` groups of `items` items, `layers` times.

    `arguments` follow the packets' own.
    """

    kernel: str
    groups: int
    items: int
    layers: int
    arguments: Sequence[Argument]


class Lane(Protocol):
    """A queue of a device with memory for one batch at both ends.

    Requests are carried out in order.
    """

    @property
    def packets(self) -> U32:
        """(words,) in pinned memory, to be filled before `send`."""

    @property
    def found(self) -> U32:
        """(answers,) in pinned memory, there after `fetch` and `wait`."""

    def send(self, words: int) -> None:
        """Copy the first words of `packets` to the device."""

    def launch(self, program: Any, launch: Launch, room: int, count: int) -> None:
        """Run a kernel of a program of the same device.

        Its arguments are the lane's packets, of which each column has `room` words, `count`, the answers, then those
        of the launch.
        """

    def fetch(self, answers: int) -> None:
        """Copy the first answers from the device into `found`."""

    def wait(self) -> None:
        """Wait until all that was asked is done."""


class Device(Protocol):
    """A device, with the library that speaks to it."""

    @property
    def name(self) -> str: ...

    @property
    def library(self) -> str:
        """`opencl` or `cuda`."""

    @property
    def is_accelerator(self) -> bool:
        """Whether it is something else than this machine's processor, which the C classifier uses better."""

    @property
    def limits(self) -> Limits: ...

    def read_joules(self) -> float | None:
        """Return the energy used since some moment in the past.

        None where the device does not tell.
        """

    def build(self, source: str) -> Program:
        """Compile the models for this device. Raises Refused with what the compiler said."""

    def store(self, words: U32) -> Memory:
        """Copy a table to the device, and compare what arrived. Raises TooLarge and Refused."""

    def lane(self, words: int, answers: int) -> Lane:
        """A lane for batches of so many words of packets and so many answers.

        Raises TooLarge.
        """

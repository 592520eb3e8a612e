"""Search by a device: batches in several lanes, with rows changed between batches.

    packets ──▶ lane 0 │ lane 1 │ lane 2 ──▶ rows        a batch is packed into the pinned memory of the next lane while
                                                         the device copies and searches those before it

New rows are compiled and put onto the device beside the old ones; then one reference changes. A call of `first` reads
it once, so all its batches are decided by the same rows, and no packet waits for a change.

The models' source is the same for OpenCL C and CUDA C.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from orchestrator.classify.columns import I32
from orchestrator.classify.devices.device import Device, Lane, Program
from orchestrator.classify.devices.models import MOST_LAYERS, SHARED, Loaded, Model, compile_rows, load
from orchestrator.classify.devices.tables import pack, packet_columns, words_of
from orchestrator.classify.packets import Packets
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BYTES
from orchestrator.policy.space import Box

PARTS = ("portable.h", "models.c")


@cache
def source(family: Family) -> str:
    """Return the source of the models for addresses of one IP version."""
    folder = files(__package__) / "kernels"
    numbers = (f"#define WORDS {words_of(family)}", f"#define BYTE_FIELDS {len(BYTES)}")
    return "\n".join([*numbers, *((folder / part).read_text("utf-8") for part in PARTS)])


NONE = -1
"""Instead of a row: none holds the packet."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a device is used."""

    model: Model = Model.BIT_VECTORS
    items: int = 64
    """Of a group; a power of two."""
    room: int = 1 << 16
    """Packets of a batch at most."""
    lanes: int = 3

    def __post_init__(self) -> None:
        if self.items < 1 or self.items > 1024 or self.items & (self.items - 1):
            raise BadInput(f"a group has 1 to 1024 items, a power of two, not {self.items}", place="items")
        if self.room < 1 or self.lanes < 1:
            raise BadInput("a device needs room for a packet and a lane", place="room")
        if self.model is Model.FUNCTION_BATCHED and self.room > MOST_LAYERS:
            raise BadInput(f"a batch of {self.model.value} has {MOST_LAYERS:,} packets at most", place="room")


class DeviceSearch:
    """Rows of one IP version on a device. Threads may ask; they take turns."""

    def __init__(self, device: Device, family: Family, boxes: Sequence[Box], setup: Setup) -> None:
        """Raises TooLarge where the device has too little memory, Refused where it says no."""
        if setup.items > device.limits.group_items:
            raise BadInput(f"{device.name} has groups of {device.limits.group_items} items at most", place="items")
        self._device, self._family, self._setup = device, family, setup
        self._program: Program = device.build(source(family))
        answers = setup.room * (setup.items if setup.model is Model.FUNCTION_BATCHED else 1)
        self._lanes = [
            device.lane(packet_columns(family) * setup.room, max(answers, setup.items)) for _ in range(setup.lanes)
        ]
        self._turn = threading.Lock()
        self.loaded = self._ready(boxes)

    def replace(self, boxes: Sequence[Box]) -> None:
        """Search in other rows from the next call of `first` on.

        After TooLarge or Refused the old rows stay.
        """
        self.loaded = self._ready(boxes)

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, NONE where none does.

        Raises BadInput for packets of another IP version or that were not read, and TooLarge or Refused where the
        device fails.
        """
        if (packets["family"] != self._family.value).any():
            raise BadInput(f"packets that are not of {self._family.name} were given to its rows", place="packets")
        found = np.full(len(packets), NONE, np.int32)
        loaded = self.loaded
        if loaded is not None:
            with self._turn:
                self._search(loaded, packets, found)
        return found

    def _ready(self, boxes: Sequence[Box]) -> Loaded | None:
        """Rows on the device; None where there are none."""
        compiled = compile_rows(self._setup.model, self._family, boxes)
        return load(self._device, self._program, compiled) if compiled.count else None

    def _search(self, loaded: Loaded, packets: Packets, found: I32) -> None:
        waiting: deque[tuple[Lane, I32]] = deque()
        room, items = self._setup.room, self._setup.items
        try:
            for number, begin in enumerate(range(0, len(packets), room)):
                if len(waiting) == len(self._lanes):
                    finish(loaded, *waiting.popleft(), items)
                lane, part = self._lanes[number % len(self._lanes)], found[begin : begin + room]
                waiting.append((lane, part))
                send(lane, packets[begin : begin + room], self._family)
                start(loaded, lane, part, items)
            while waiting:
                finish(loaded, *waiting.popleft(), items)
        finally:
            for lane, _ in waiting:  # something failed: no batch may be under way when these lanes are used again
                lane.wait()


def send(lane: Lane, packets: Packets, family: Family) -> None:
    """Pack packets into a lane and send them to its device."""
    columns = packet_columns(family)
    words = columns * len(packets)
    pack(packets, family, lane.packets[:words].reshape(columns, len(packets)))
    lane.send(words)


def start(loaded: Loaded, lane: Lane, found: I32, items: int) -> None:
    """Begin a batch; do all of it where each packet is a launch."""
    if loaded.compiled.model is not Model.FUNCTION:
        loaded.start(lane, len(found), items)
        lane.fetch(loaded.answers(len(found), items))
        return
    for packet in range(len(found)):
        loaded.start_one(lane, len(found), packet, items)
        lane.fetch(items)
        lane.wait()
        found[packet] = lane.found[:items].min().view(np.int32)


def finish(loaded: Loaded, lane: Lane, found: I32, items: int) -> None:
    """Wait for a batch and take its rows.

    An answer is a row, or all bits: as an unsigned number above every row.
    """
    lane.wait()
    if loaded.compiled.model is Model.FUNCTION:
        return
    answers = lane.found[: loaded.answers(len(found), items)]
    if loaded.compiled.model in SHARED:
        answers = answers.reshape(len(found), items).min(axis=1)
    found[:] = answers.view(np.int32)

"""A device's search with the C classifier behind it, so that a device that fails costs time and no verdict."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.classify.columns import I32
from orchestrator.classify.devices.device import Device
from orchestrator.classify.devices.models import Model
from orchestrator.classify.devices.search import DeviceSearch, Setup
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.classify.search import Search
from orchestrator.errors import Refused, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import Box

PROBES = 256
"""Rows of which a packet is put to a device before it is believed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows are searched: in a model on a device, or in C."""

    model: Model | None
    """None: in C."""
    because: str | None = None
    """Why it is not the first choice."""


class GuardedSearch:
    """Rows on a device as long as it answers as it should, else in C.

    Threads may ask, and change the rows.
    """

    def __init__(self, device: Device, family: Family, boxes: Sequence[Box], setup: Setup | None = None) -> None:
        """Without a `setup` bit vectors are tried, then merged tuples."""
        self._device, self._family = device, family
        self._setups = (setup,) if setup else (Setup(Model.BIT_VECTORS), Setup(Model.MERGED_TUPLES))
        self._change = threading.Lock()
        self._now = self._made(boxes)

    @property
    def place(self) -> Place:
        """Where rows are searched now."""
        return self._now.place

    def replace(self, boxes: Sequence[Box]) -> Place:
        """Search in other rows from the next call of `first` on; where.

        The device is tried anew.
        """
        made = self._made(boxes)
        with self._change:
            self._now = made
        return made.place

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, -1 where none does.

        Packets are of the rows' IP version.
        """
        now = self._now
        if now.on_device is not None:
            try:
                return now.on_device.first(packets)
            except (Refused, TooLarge) as error:
                self._give_up(now, str(error))
        return now.in_c.first(packets)

    def _give_up(self, failed: _Ready, because: str) -> None:
        """Search in C from now on, unless the rows were changed meanwhile."""
        with self._change:
            if self._now is failed:
                self._now = _Ready(failed.in_c, None, Place(None, because))

    def _made(self, boxes: Sequence[Box]) -> _Ready:
        in_c = Search(self._family, boxes)
        because = None
        for setup in self._setups:
            try:
                on_device = DeviceSearch(self._device, self._family, boxes, setup)
                check(on_device, in_c, boxes)
                return _Ready(in_c, on_device, Place(setup.model, because))
            except (Refused, TooLarge) as error:
                because = str(error)
        return _Ready(in_c, None, Place(None, because))


@dataclass(frozen=True, slots=True, eq=False)
class OnDevice:
    """Makes rows ready on a device, and knows those that it made."""

    device: Device
    made: list[GuardedSearch] = field(default_factory=list)

    def search(self, family: Family, boxes: Sequence[Box]) -> GuardedSearch:
        """Rows, one at least, on the device."""
        self.made.append(GuardedSearch(self.device, family, boxes))
        return self.made[-1]

    def reasons(self) -> tuple[str, ...]:
        """Why rows are not searched in the model of first choice; each reason once."""
        return tuple(dict.fromkeys(each.place.because for each in self.made if each.place.because is not None))


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """Rows that can be asked, in C and on the device."""

    in_c: Search
    on_device: DeviceSearch | None
    place: Place


def check(on_device: DeviceSearch, in_c: Search, boxes: Sequence[Box]) -> None:
    """Compare the device's rows with those of C for packets of some rows.

    Raises Refused where they differ.
    """
    chosen = boxes[:: max(1, len(boxes) // PROBES)]
    packets = np.array([record(box.witness()) for box in chosen], PACKET)
    found, wanted = on_device.first(packets), in_c.first(packets)
    wrong = np.flatnonzero(found != wanted)
    if len(wrong):
        place = int(wrong[0])
        raise Refused(f"the device finds row {found[place]} for a packet of which row {wanted[place]} is the first")

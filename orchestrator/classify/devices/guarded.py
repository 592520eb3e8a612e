"""A device's search backed by the C classifier: failures cost time, no verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from weakref import WeakSet, finalize

import numpy as np

from orchestrator.classify.columns import I32
from orchestrator.classify.devices.device import Device
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup
from orchestrator.classify.devices.models import Model
from orchestrator.classify.overlay import Searching
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


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a device may take before it counts as hung."""

    answer_s: float = 0.5
    """For an answer to packets."""
    build_s: float = 60.0
    """For building rows, which may compile kernels."""


class Hung(Refused):
    """The device neither answered nor failed.

    Its last request may go on for ever, in a thread of its own.
    """


@dataclass(slots=True)
class Health:
    """Whether a device hung, and how.

    Then it is never asked again.
    """

    hung: str | None = None


class Attended:
    """Rows on a device, searched by a thread that is abandoned when the device hangs."""

    def __init__(self, on_device: DeviceSearch, patience_s: float) -> None:
        self._on_device, self._patience_s = on_device, patience_s
        self._asked: SimpleQueue[_Question | None] = SimpleQueue()
        asking = threading.Thread(
            target=_answer_questions, args=(self._on_device, self._asked), name="device", daemon=True
        )
        asking.start()
        finalize(self, self._asked.put, None)

    def first(self, packets: Packets) -> I32:
        """See `DeviceSearch.first`. Raises Hung, too."""
        question = _Question(packets)
        self._asked.put(question)
        if not question.done.wait(self._patience_s):
            raise Hung(f"the device did not answer within {self._patience_s:g} s")
        if question.failed is not None:
            raise question.failed
        return question.found


@dataclass(slots=True, eq=False)
class _Question:
    """Packets, and what came of them."""

    packets: Packets
    found: I32 = field(default_factory=lambda: np.zeros(0, np.int32))
    failed: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


def _answer_questions(on_device: DeviceSearch, asked: SimpleQueue[_Question | None]) -> None:
    while (question := asked.get()) is not None:
        try:
            question.found = on_device.first(question.packets)
        except Exception as error:  # noqa: BLE001 -- told to the thread that asks
            question.failed = error
        question.done.set()


def _within(patience_s: float, make: Callable[[], DeviceSearch]) -> DeviceSearch:
    """Return a function's result within a time.

    Raises Hung if it takes longer, and leaves it behind.
    """
    results: SimpleQueue[DeviceSearch | Exception] = SimpleQueue()

    def attempt() -> None:
        try:
            results.put(make())
        except Exception as error:  # noqa: BLE001 -- told to the thread that asks
            results.put(error)

    threading.Thread(target=attempt, name="device-build", daemon=True).start()
    try:
        found = results.get(timeout=patience_s)
    except Empty:
        raise Hung(f"the device did not take rows within {patience_s:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


class GuardedSearch:
    """Rows on a device as long as it answers as it should, else in C.

    Threads may ask, and change the rows.
    """

    def __init__(
        self,
        device: Device,
        family: Family,
        boxes: Sequence[Box],
        setup: Setup | None = None,
        patience: Patience | None = None,
        health: Health | None = None,
    ) -> None:
        """Without a `setup` bit vectors are tried, then merged tuples.

        Without `patience` callers wait for the device for ever. All rows on a device share its `health`.
        """
        self._device, self._family, self._patience = device, family, patience
        self._health = health or Health()
        self._setups = (setup,) if setup else (Setup(Model.BIT_VECTORS), Setup(Model.MERGED_TUPLES))
        self._change = threading.Lock()
        self._now = self._make_ready(boxes)

    @property
    def place(self) -> Place:
        """Where rows are searched now."""
        hung = self._health.hung
        return self._now.place if hung is None else Place(None, hung)

    def replace(self, boxes: Sequence[Box]) -> Place:
        """Search in other rows from the next call of `first` on; where.

        The device is tried anew.
        """
        made = self._make_ready(boxes)
        with self._change:
            self._now = made
        return made.place

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, -1 where none does.

        Packets are of the rows' IP version.
        """
        now = self._now
        if now.on_device is not None and self._health.hung is None:
            try:
                return now.on_device.first(packets)
            except Hung as error:
                self._health.hung = str(error)
            except (Refused, TooLarge) as error:
                self._give_up(now, str(error))
        return now.in_c.first(packets)

    def _give_up(self, failed: _Ready, because: str) -> None:
        """Search in C from now on, unless the rows were changed meanwhile."""
        with self._change:
            if self._now is failed:
                self._now = _Ready(failed.in_c, None, Place(None, because))

    def _make_ready(self, boxes: Sequence[Box]) -> _Ready:
        in_c = Search(self._family, boxes)
        because = None
        for setup in self._setups if self._health.hung is None else ():
            try:
                on_device = self._on_device(boxes, setup, in_c)
                return _Ready(in_c, on_device, Place(setup.model, because))
            except Hung as error:
                self._health.hung = str(error)
                break
            except (Refused, TooLarge) as error:
                because = str(error)
        return _Ready(in_c, None, Place(None, because))

    def _on_device(self, boxes: Sequence[Box], setup: Setup, in_c: Search) -> DeviceSearch | Attended:
        """Rows on the device, compared with those in C. Raises Refused, TooLarge and Hung."""

        def make_search() -> DeviceSearch:
            found = DeviceSearch(self._device, self._family, boxes, setup)
            check(found, in_c, boxes)
            return found

        if self._patience is None:
            return make_search()
        return Attended(_within(self._patience.build_s, make_search), self._patience.answer_s)


class OnDevice:
    """Prepares rows on a device, and tracks those still in use."""

    def __init__(self, device: Device, patience: Patience | None = None) -> None:
        self._device, self._patience, self._health = device, patience, Health()
        self._made: WeakSet[GuardedSearch] = WeakSet()

    def search(self, family: Family, boxes: Sequence[Box]) -> Searching:
        """Rows on the device; in C where there are none."""
        if not boxes:
            return Search(family, boxes)
        made = GuardedSearch(self._device, family, boxes, patience=self._patience, health=self._health)
        self._made.add(made)
        return made

    def reasons(self) -> tuple[str, ...]:
        """Why rows are not searched in the model of first choice; each reason once."""
        return tuple(sorted({each.place.because for each in self._made if each.place.because is not None}))


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """Rows that can be asked, in C and on the device."""

    in_c: Search
    on_device: DeviceSearch | Attended | None
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

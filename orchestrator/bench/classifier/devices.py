"""The models of *Parallel Firewalls on GPGPU* on a device, and ours.

Its figures 5 and 6, and the cost of copies and launches.

    figure 5    delay a packet against the number of rules, 64 items           all models, and the list in order in C
    figure 6    delay a packet against the number of items, 2,048 rules        all models
    batches     time until a batch is answered against its size, 2,048 rules   two models, and two classifiers in C
    groups      time a packet against items of a group, batches of 16,384      models with an item or a group a packet
    energy      energy a packet with packets on the device, 2,048 rules        those with an item a packet, where told

A delay is from packets in pinned memory of this machine to rows there: copy in, launches, copy out. Items of models
with an item a packet are packets of a batch; of the others they share the rules of a packet, in batches of 64 packets.
Packets are drawn evenly from all rules. A model's rows are compared with those of C before it is measured.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.classify.columns import I32
from orchestrator.classify.devices.device import Device, Lane
from orchestrator.classify.devices.devicesearch import finish, send, source, start
from orchestrator.classify.devices.models import SHARED, Loaded, Model, compile_rows, load
from orchestrator.classify.devices.tables import packet_columns
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.classify.search import IN_ORDER, Search
from orchestrator.errors import Drifted, Refused, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import Box

RULES = 2_048
ITEMS = 64
_PACKETS = 64
"""Of a batch of figures 5 and 6, where items are not packets."""
_GROUPED = 1 << 14
"""Packets on the device where groups are compared."""
_RESIDENT = 1 << 20
"""Packets that lie on a GPU while it is measured; a processor gets a sixteenth."""

_ENERGY_S = 2.0
"""So long a model runs while a device's counter of energy, which is renewed a few times a second, is read."""

_DATA_PARALLEL = (Model.DATA_GLOBAL, Model.DATA_CONSTANT, Model.DATA_LOCAL)
_SCALABLE = (Model.BIT_VECTORS, Model.TUPLE_SPACE, Model.MERGED_TUPLES)
_ITEM_A_PACKET = (*_DATA_PARALLEL, *_SCALABLE)
_LIST_IN_C, _TREES_IN_C = "C, the list in order", "C, trees"

_GPU_FIGURES = {
    "ns_per_packet_2048": Target(1.0),
    "ns_per_packet_2048_scalable": Target(0.2),
    "ns_per_packet_2048_with_copies": Target(2.0),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int
    rules: tuple[int, ...]
    items: tuple[int, ...]
    batches: tuple[int, ...]
    groups: tuple[int, ...]


QUICK = Sizes(5, (64, 256, 1024, 2048), (1, 16, 64), (1, 64, 4096), (64,))
WHOLE = Sizes(
    15, (16, 32, 64, 128, 256, 512, 1024, 2048, 4096), tuple(1 << power for power in range(11)),
    tuple(4**power for power in range(9)), (8, 16, 32, 64, 128, 256),
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows of IPv4, packets drawn from them, and the first row of each packet."""

    boxes: tuple[Box, ...]
    packets: Packets
    rows: I32


def sample(rules: int, packets: int = 4_096) -> Sample:
    """Draw a list from a seed, with packets of its rules in random order."""
    boxes = tuple(row.box for row in rule_rows(synthetic(rules), Direction.INGRESS)[Family.IPV4])
    draw = random.Random(7)  # noqa: S311 -- the same packets in every run
    chosen = [boxes[place * (len(boxes) - 1) // packets] for place in range(packets)]
    draw.shuffle(chosen)
    found = np.array([record(box.witness()) for box in chosen], PACKET)
    return Sample(boxes, found, Search(Family.IPV4, boxes).first(found))


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A model on a device with a batch of packets in a lane."""

    loaded: Loaded
    lane: Lane
    count: int
    items: int
    found: I32

    def whole(self) -> None:
        """Copy in, search, copy out."""
        self.lane.send(packet_columns(Family.IPV4) * self.count)
        start(self.loaded, self.lane, self.found, self.items)
        finish(self.loaded, self.lane, self.found, self.items)

    def resident(self) -> None:
        """Search packets that are on the device, and leave their rows there."""
        self.loaded.start(self.lane, self.count, self.items)
        self.lane.wait()


def prepare(device: Device, model: Model, made: Sample, items: int, count: int) -> Run:
    """A model with `count` packets in a lane.

    Raises Drifted for a wrong row, TooLarge and Refused.
    """
    loaded = load(device, device.build(source(Family.IPV4)), compile_rows(model, Family.IPV4, made.boxes))
    answers = count * items if model in SHARED else count
    lane = device.lane(packet_columns(Family.IPV4) * count, max(answers, items))
    packets, wanted = np.resize(made.packets, count), np.resize(made.rows, count)
    run = Run(loaded, lane, count, items, np.empty(count, np.int32))
    send(lane, packets, Family.IPV4)
    run.whole()
    wrong = np.flatnonzero(run.found != wanted)
    if len(wrong):
        raise Drifted(f"{model.value}: row {run.found[wrong[0]]} for a packet that row {wanted[wrong[0]]} holds first")
    return run


def measure(results: Results, devices: Sequence[Device], missing: str, *, quick: bool, progress: Progress) -> None:
    """Add series and figures of each device.

    Without a CUDA device its figures are absent for the reason `missing`.
    """
    sizes = QUICK if quick else WHOLE
    for device in devices:
        progress(f"{device.name}: delay against rules")
        results.series += by_rules(device, sizes, results)
        progress(f"{device.name}: delay against items")
        results.series += by_items(device, sizes, results)
        progress(f"{device.name}: batches")
        results.series += by_batch(device, sizes) + by_group(device, sizes)
        resident_figures(results, device, sizes)
        results.notes.append(f"{device.library}: {device.name}, {device.limits}")
    if not any(_prefix(device) == "" for device in devices):
        for name in _GPU_FIGURES:
            results.absent[name] = missing


def by_rules(device: Device, sizes: Sizes, results: Results) -> list[Series]:
    """Measure microseconds a packet against rules, with 64 items (figure 5)."""
    spent: dict[str, dict[int, float]] = {}
    for rules in sizes.rules:
        made = sample(rules)
        for model in Model:
            try:
                values = _delays_us(device, model, made, ITEMS, _PACKETS, sizes.rounds)
            except (TooLarge, Refused) as error:
                results.notes.append(f"{model.value} with {rules:,} rules was not measured: {error}")
                continue
            spent.setdefault(model.value, {})[rules] = statistics.median(values)
            if rules == RULES:
                results.figures[f"{_prefix(device)}{word_of(model)}_us"] = Figure.of(values, "us")
        in_c = partial(in_list_order(made).first, made.packets)
        in_order = _time_rounds(in_c, sizes.rounds, 1e6 / len(made.packets))
        spent.setdefault(_LIST_IN_C, {})[rules] = statistics.median(in_order)
        if rules == RULES:
            results.figures["sequential_us"] = Figure.of(in_order, "us")
    return _make_series(device, spent, "rules", "delay_by_rules_us")


def by_items(device: Device, sizes: Sizes, results: Results) -> list[Series]:
    """Measure microseconds a packet against items, with 2,048 rules (figure 6)."""
    made, spent = sample(RULES), dict[str, dict[int, float]]()
    for model in Model:
        for items in sizes.items:
            count = items if model in _ITEM_A_PACKET else _PACKETS
            try:
                values = _delays_us(device, model, made, items, count, sizes.rounds)
            except (TooLarge, Refused) as error:
                results.notes.append(f"{model.value} with {items:,} items was not measured: {error}")
                break
            spent.setdefault(model.value, {})[items] = statistics.median(values)
    return _make_series(device, spent, "items", "delay_by_items_us")


def by_batch(device: Device, sizes: Sizes) -> list[Series]:
    """Microseconds until a batch is answered against its size, with 2,048 rules."""
    made, spent = sample(RULES), dict[str, dict[int, float]]()
    trees = Search(Family.IPV4, made.boxes)
    searches: dict[str, InOrder | Search] = {_LIST_IN_C: in_list_order(made), _TREES_IN_C: trees}
    for size in sizes.batches:
        for model in (Model.DATA_GLOBAL, Model.BIT_VECTORS):
            run = prepare(device, model, made, ITEMS, size)
            spent.setdefault(model.value, {})[size] = statistics.median(_time_rounds(run.whole, sizes.rounds, 1e6))
        packets = np.resize(made.packets, size)
        for name, search in searches.items():
            values = _time_rounds(partial(search.first, packets), sizes.rounds, 1e6)
            spent.setdefault(name, {})[size] = statistics.median(values)
    return _make_series(device, spent, "packets of a batch", "batch_latency_us")


def by_group(device: Device, sizes: Sizes) -> list[Series]:
    """Nanoseconds a packet against items of a group, packets on the device, with 2,048 rules."""
    made, count, spent = sample(RULES), _GROUPED, dict[str, dict[int, float]]()
    for model in (*_ITEM_A_PACKET, Model.HYBRID):
        for items in sizes.groups:
            run = prepare(device, model, made, items, count)
            values = _time_rounds(run.resident, sizes.rounds, 1e9 / count)
            spent.setdefault(model.value, {})[items] = statistics.median(values)
    return _make_series(device, spent, "items of a group", "group_size_ns")


def resident_figures(results: Results, device: Device, sizes: Sizes) -> None:
    """Add ns a packet with 2,048 rules: each model with and without copies.

    Without copies, packets are on the device already.
    """
    made = sample(RULES)
    count = _RESIDENT if device.is_accelerator else _RESIDENT // 16
    best: dict[str, list[float]] = {}
    for model in _ITEM_A_PACKET:
        values = _time_rounds(prepare(device, model, made, 4 * ITEMS, count).resident, sizes.rounds, 1e9 / count)
        results.figures[f"{_prefix(device)}{word_of(model)}_ns"] = Figure.of(values, "ns")
        name = "ns_per_packet_2048" if model in _DATA_PARALLEL else "ns_per_packet_2048_scalable"
        best[name] = min(best.get(name, values), values, key=statistics.median)
    best["ns_per_packet_2048_with_copies"] = time_overlapped(device, made, count, sizes.rounds)
    measure_energy(results, device, made, count)
    for name, values in best.items():
        target = None if _prefix(device) else _GPU_FIGURES[name]
        results.figures[f"{_prefix(device)}{name}"] = Figure.of(values, "ns", target)


def measure_energy(results: Results, device: Device, made: Sample, count: int) -> None:
    """Add nanojoules a packet of each model, with packets on the device.

    They are absent where the device does not tell.
    """
    for model in _ITEM_A_PACKET:
        name = f"{_prefix(device)}{word_of(model)}_nj"
        run, passes = prepare(device, model, made, 4 * ITEMS, count), 0
        began, before = time.perf_counter(), device.read_joules()
        while before is not None and (not passes or time.perf_counter() - began < _ENERGY_S):
            run.resident()
            passes += 1
        after = device.read_joules()
        if before is None or after is None or after < before:
            results.absent[name] = f"{device.name} does not tell its energy"
        else:
            results.figures[name] = Figure.of([1e9 * (after - before) / (passes * count)], "nJ")


def time_overlapped(device: Device, made: Sample, count: int, rounds: int) -> list[float]:
    """Nanoseconds a packet of bit vectors with copies both ways, three lanes in flight."""
    runs = [prepare(device, Model.BIT_VECTORS, made, 4 * ITEMS, count // 8) for _ in range(3)]

    def run_once() -> None:
        for number in range(8):
            run = runs[number % 3]
            if number >= len(runs):
                finish(run.loaded, run.lane, run.found, run.items)
            run.lane.send(packet_columns(Family.IPV4) * run.count)
            start(run.loaded, run.lane, run.found, run.items)
        for run in runs:
            finish(run.loaded, run.lane, run.found, run.items)

    return _time_rounds(run_once, rounds, 1e9 / (8 * (count // 8)))


@dataclass(frozen=True, slots=True, eq=False)
class InOrder:
    """Searches a list in C row by row, as the paper's sequential firewall does."""

    search: Search

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet."""
        return self.search.first(packets, IN_ORDER)


def in_list_order(made: Sample) -> InOrder:
    """A sample's rows, to be gone through."""
    return InOrder(Search(Family.IPV4, made.boxes))


def _delays_us(device: Device, model: Model, made: Sample, items: int, count: int, rounds: int) -> list[float]:
    """Microseconds a packet of each round, copies and launches included. Raises as `prepare` does."""
    return _time_rounds(prepare(device, model, made, items, count).whole, rounds, 1e6 / count)


def _time_rounds(call: Callable[[], object], rounds: int, scale: float) -> list[float]:
    """Time each of some rounds, after one that warms everything up."""
    call()
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        spent.append(scale * (time.perf_counter() - began))
    return spent


def _make_series(device: Device, spent: dict[str, dict[int, float]], x_label: str, y_label: str) -> list[Series]:
    found = []
    for name, points in spent.items():
        x, y = tuple(map(float, points)), tuple(points.values())
        found.append(Series(name, x, y, x_label, f"{_prefix(device)}{y_label}", x_log=True, y_log=True))
    return found


def _prefix(device: Device) -> str:
    """Return the prefix of figures of a device that is not CUDA's."""
    return "" if device.library == "cuda" else f"{device.library}_"


def word_of(model: Model) -> str:
    """Return a model's word in names of figures."""
    return model.value.replace("-", "_")

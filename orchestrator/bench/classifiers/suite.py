"""Suite classifiers: the cost of searches of general rows in the kernel.

    bit vectors                      the classifier of firewall servers
    tuple space                      a look-up in a hash table for each shape of row
    recursive flow classification    tables of combined classes

Packets are drawn from the rows, each from another one, evenly over the list. Programs take turns; what the bare program
costs is taken from each. Where a way's tables are too large to be made, the report says how large.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from orchestrator.bench.classifiers import kernelsearches
from orchestrator.bench.classifiers.kernelsearches import Programs, Way
from orchestrator.bench.classifiers.searchtables import Masked, Recursive, TupleSpace, recursive, tuple_space
from orchestrator.bench.firewall_server.general import classifier_rows
from orchestrator.bench.nft_cost import owning_all, sets
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results, Series
from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.servers.bitvectors import Vectors, bit_vectors
from orchestrator.errors import Drifted, Missing, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl
from orchestrator.policy.spans import Span

T = TypeVar("T")

VECTORS, TUPLES, CLASSES = "bit vectors", "tuple space", "recursive flow classification"
_BARE = "bare"
_WORDS = {VECTORS: "vectors", TUPLES: "tuples", CLASSES: "recursive"}
_CHECKED = 256
_LEFT_OUT = ("synthetic_10k",)
"""Lists that take long to make and show no more than a list of a thousand of their kind."""
_MOST_CELLS = {True: 1 << 23, False: 1 << 25}
"""So many cells may a table of combined classes have, quick or not: making them takes time with the rows as well."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A list's IPv4 rows, each search's tables, and the seconds to build them."""

    rows: tuple[CacheRow, ...]
    vectors: Vectors
    space: TupleSpace
    combined: Recursive | TooLarge
    seconds: Mapping[str, float]
    packets: tuple[Masked, ...]
    checked: Mapping[int, int]
    """The first row that holds the packet of a place, for some of them."""


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite.

    `quick` takes fewer rounds, and makes no large tables. Needs root, `clang` and libbpf's headers.
    """
    rounds, times = (5, 8_192) if quick else (15, 200_000)
    results = Results("classifiers", {"rounds": rounds, "packets": times})
    spent: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = kernelsearches.build(Path(folder), 4 * _MOST_CELLS[quick])
        for name, acl in sets(results):
            if name in _LEFT_OUT:
                continue
            progress(f"{name}: {len(acl.rules)} rules")
            made = prepare_rows(acl, _MOST_CELLS[quick])
            spent[name] = measure_list(results, programs, name, made, rounds, times)
            results.notes.append(sizes(name, made))
    for way in (VECTORS, TUPLES, CLASSES):
        found = [(float(place), costs[way]) for place, costs in enumerate(spent.values()) if way in costs]
        if found:
            places, values = zip(*found, strict=True)
            results.series.append(Series(way, places, values, f"set: {', '.join(spent)}", "search_ns_a_packet (ns)"))
    results.notes.append(_NOTE)
    return results


def prepare_rows(acl: Acl, most_cells: int) -> Rows:
    """Build each search's tables of a list.

    Raises TooLarge.
    """
    rows = tuple(row for row in classifier_rows(owning_all(acl)) if row.family is Family.IPV4)
    vectors, vectors_s = _time_call(lambda: bit_vectors(rows))
    space, space_s = _time_call(lambda: tuple_space(rows))
    combined, combined_s = _time_call(lambda: _combine_classes(vectors, len(rows), most_cells))
    seconds = {VECTORS: vectors_s, TUPLES: space_s, CLASSES: combined_s}
    packets = sample(rows)
    places = range(0, len(packets), len(packets) // _CHECKED)
    checked = dict(zip(places, firsts(rows, [packets[place] for place in places]), strict=True))
    return Rows(rows, vectors, space, combined, seconds, packets, checked)


def _combine_classes(vectors: Vectors, rows: int, most_cells: int) -> Recursive | TooLarge:
    """The tables of combined classes, or what is too large of them."""
    try:
        return recursive(vectors, rows, most_cells)
    except TooLarge as error:
        return error


def _time_call(make: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return make(), time.perf_counter() - began


def sample(rows: Sequence[CacheRow]) -> tuple[Masked, ...]:
    """Return packets that rows hold, drawn over the whole list and shuffled."""
    draw = random.Random(7)  # noqa: S311 -- the same packets in every run
    chosen = [rows[place * len(rows) // kernelsearches.SAMPLE] for place in range(kernelsearches.SAMPLE)]
    draw.shuffle(chosen)
    return tuple(_inside(row, draw) for row in chosen)


def _inside(row: CacheRow, draw: random.Random) -> Masked:
    """A packet that a row holds."""

    def draw_within(span: Span) -> int:
        return draw.randint(span.low, span.high)

    value, mask = row.flags
    return (
        draw_within(row.source), draw_within(row.destination), draw_within(row.source_ports),
        draw_within(row.destination_ports), draw_within(row.protocols), value | (draw.randrange(256) & ~mask),
    )  # fmt: skip


def firsts(rows: Sequence[CacheRow], packets: Sequence[Masked]) -> list[int]:
    """Return the first row that holds each packet, by checking all.

    Each packet is in some row.
    """
    fields = ("source", "destination", "source_ports", "destination_ports", "protocols")
    ends = np.array([[getattr(row, name) for name in fields] for row in rows], np.int64)  # (rows, axes, 2)
    flags = np.array([row.flags for row in rows], np.int64)
    found = []
    for *values, flag in packets:
        holds = ((ends[:, :, 0] <= values) & (values <= ends[:, :, 1])).all(axis=1)
        found.append(int((holds & (flag & flags[:, 1] == flags[:, 0])).argmax()))
    return found


def measure_list(
    results: Results, programs: Programs, name: str, made: Rows, rounds: int, times: int
) -> Mapping[str, float]:
    """Record what each way costs a packet; their medians. Raises Drifted for a wrong row."""
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        running = _start_ways(programs, stack, results, name, made)
        for way, each in running.items():
            if way != _BARE:
                check(each, made, way)
        for turn in range(rounds + 1):
            for way, each in running.items():
                found = each.ns(times)
                if turn:  # a first round warms everything up
                    spent.setdefault(way, []).append(found)
    bare = spent.pop(_BARE)
    extra = {way: [mine - none for mine, none in zip(each, bare, strict=True)] for way, each in spent.items()}
    for way, values in extra.items():
        results.figures[f"{name}_{_WORDS[way]}_ns"] = Figure.of(values, "ns")
    return {way: statistics.median(values) for way, values in extra.items()}


def _start_ways(programs: Programs, stack: ExitStack, results: Results, name: str, made: Rows) -> dict[str, Way]:
    running = {
        _BARE: stack.enter_context(kernelsearches.bare(programs, made.packets)),
        VECTORS: stack.enter_context(kernelsearches.vectors(programs, made.packets, made.rows)),
    }
    try:
        running[TUPLES] = stack.enter_context(kernelsearches.tuples(programs, made.packets, made.space))
    except Missing as error:
        results.absent[f"{name}_{_WORDS[TUPLES]}_ns"] = str(error)
    if isinstance(made.combined, Recursive):
        running[CLASSES] = stack.enter_context(
            kernelsearches.combined_ways(programs, made.packets, made.rows, made.combined)
        )
    else:
        results.absent[f"{name}_{_WORDS[CLASSES]}_ns"] = f"not made here: {made.combined}"
    return running


def check(way: Way, made: Rows, name: str) -> None:
    """Compare a search's rows with the first matches of some packets.

    Raises Drifted.
    """
    for place, wanted in made.checked.items():
        found = way.row(place)
        if found != wanted:
            raise Drifted(f"{name}: row {found} for {made.packets[place]}, which row {wanted} holds first")


def sizes(name: str, made: Rows) -> str:
    """Describe each search's size for a list in one line."""
    asked = statistics.mean(made.space.first(packet)[1] for packet in made.packets[:_CHECKED])
    size = sum(axis.vectors.nbytes for axis in made.vectors.axes)
    tables = made.combined
    combined = f"{tables.memory_bytes / 1e6:.1f} MB" if isinstance(tables, Recursive) else f"not made ({tables})"
    took = made.seconds
    return (
        f"{name}, {len(made.rows):,} rows: vectors {size / 1e6:.1f} MB, made in {took[VECTORS]:.1f} s; tuple space "
        f"{len(made.space.shapes):,} shapes, {len(made.space.entries):,} entries, made in {took[TUPLES]:.1f} s, "
        f"{asked:.0f} look-ups a packet; recursive {combined}, made in {took[CLASSES]:.1f} s"
    )


_NOTE = (
    "nanoseconds are what a search adds to a program that searches nothing, by the kernel's clock, over 4,096 packets "
    "in turn that are drawn evenly from all rows; each way's rows were compared with asking row by row before"
)

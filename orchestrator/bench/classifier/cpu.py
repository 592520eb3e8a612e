"""Search on one core beside DPDK's rte_acl: same lists and packets, taking turns.

The clock of a pass covers finding the rows of all packets of a trace, of several passes the fastest; that of building
begins at the list as columns (ours) and as an array of rules (rte_acl's). Ours is asked about everything that a list
says; rte_acl's list has neither flags nor ICMP types nor fragments. Before anything is timed, rte_acl's rows and ours
for that shorter list must be the same, packet by packet.

rte_acl is a peer in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.bench.classifier.classifierlists import KINDS, Listed, generate_list, load_list, trace
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.classify.columns import columns
from orchestrator.classify.overlay import Overlaid, Placed
from orchestrator.classify.packets import PACKET, Packets, packet_of, record
from orchestrator.classify.search import Search, share_of
from orchestrator.errors import Drifted, Missing
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BITS_AXES, PROTOCOL
from orchestrator.policy.space import ALL_BYTES, Box, full_set
from orchestrator.policy.spans import Span

RULES = (1_000, 10_000)
LONG = 100_000
PACKETS = 40_000
_PASSES = 5
_UPDATES = 64
"""Changes of a rule before rows are built anew: the last of them finds the longest overlay."""
_X, _Y = "rules", "search_ns_a_packet (ns)"
_OURS, _THEIRS = "aclflow", "rte_acl"

EAL = ("--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "--force-max-simd-bitwidth=512")
"""Options with which DPDK runs as an ordinary process."""

MEMORY_MB = 6000

_SOURCE = Path(__file__).parent / "_native" / "rteacl.c"
_LINE = np.dtype(
    [("source", "<u4"), ("destination", "<u4"), ("source_length", "u1"), ("destination_length", "u1"),
     ("protocol", "u1"), ("protocol_mask", "u1"), ("ports", "<u2", 4), ("row", "<i4")]
)  # fmt: skip
_TUPLE = np.dtype(
    [("protocol", "u1"), ("padding", "u1", 3), ("source", ">u4"), ("destination", ">u4"), ("source_port", ">u2"),
     ("destination_port", ">u2")]
)  # fmt: skip


class Peer:
    """A list that rte_acl has built."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        word, *rest = self._read_answer().split()
        if word != "built":
            raise Missing(" ".join(rest) or "rte_acl does not start")
        self.build_s, self.bytes, self.way = float(rest[0]), int(rest[1]), rest[2]

    def ns(self) -> float:
        """Nanoseconds a packet, the best of some passes over all packets."""
        return float(self._ask_program("go"))

    def rows(self) -> npt.NDArray[np.int32]:
        """The row of each packet, -1 where none holds it."""
        return np.array(self._ask_program("rows").split(), np.int32)

    def _ask_program(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if not line.startswith("EAL:"):
                return line
        raise Missing("rte_acl ended")


def built(folder: Path) -> Path:
    """Compile the program. Raises Missing where there is no compiler, or no DPDK."""
    if shutil.which("gcc") is None or shutil.which("pkg-config") is None:
        raise Missing("rte_acl is compared with gcc and pkg-config: install them, and libdpdk-dev")
    flags = [
        subprocess.run(["pkg-config", asked, "libdpdk"], capture_output=True, text=True, check=False).stdout.split()
        for asked in ("--cflags", "--libs")
    ]
    target = folder / "rteacl"
    done = subprocess.run(
        ["gcc", "-O3", *flags[0], str(_SOURCE), "-o", str(target), *flags[1]],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Missing("rte_acl is not there: install libdpdk-dev")
    return target


@contextmanager
def running(
    program: Path, boxes: Sequence[Box], packets: Packets, *, core: int, passes: int, limit: int = 0
) -> Iterator[Peer]:
    """Run a list in rte_acl on one core.

    Its tables have `limit` bytes at most (0: its own default). Raises Missing.
    """
    with tempfile.TemporaryDirectory() as name:
        lines, tuples = Path(name) / "lines", Path(name) / "tuples"
        lines.write_bytes(_lines(boxes).tobytes())
        tuples.write_bytes(_make_tuples(packets).tobytes())
        words = [lines, tuples, limit, passes, *EAL, "-m", MEMORY_MB, "-l", core]
        with subprocess.Popen(
            [program, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield Peer(process)
            finally:
                process.kill()


def five_fields(box: Box) -> Box:
    """A box without what rte_acl is not asked about: flags, ICMP types and codes, fragments."""
    every: dict[str, Any] = {each.axis: full_set(each, box.family) for each in BITS_AXES if each is not PROTOCOL}
    return box._replace(**every)


def _lines(boxes: Sequence[Box]) -> npt.NDArray[Any]:
    """Return the rules of boxes: each combination of prefixes, port ranges and protocols."""
    rows: list[tuple[Any, ...]] = []
    for row, box in enumerate(boxes):
        protocols = [(0, 0)] if box.protocols == ALL_BYTES else _list_protocols(box.protocols)
        sides = [[each for span in side for each in _prefixes(span)] for side in (box.source, box.destination)]
        ports = [(*one, *other) for one, other in product(box.source_ports, box.destination_ports)]
        for (source, length), (destination, other), (protocol, mask), ends in product(*sides, protocols, ports):
            rows.append((source, destination, length, other, protocol, mask, ends, row))
    return np.array(rows, _LINE)


def _list_protocols(bits: int) -> list[tuple[int, int]]:
    return [(number, 255) for number in range(256) if bits >> number & 1]


def _prefixes(span: Span) -> list[tuple[int, int]]:
    """A span of addresses as prefixes: first address and length."""
    found, low = [], span.low
    while low <= span.high:
        bits = min((low & -low or 1 << 32).bit_length(), (span.high - low + 1).bit_length()) - 1
        found.append((low, 32 - bits))
        low += 1 << bits
    return found


def _make_tuples(packets: Packets) -> npt.NDArray[Any]:
    found = np.zeros(len(packets), _TUPLE)
    found["source"], found["destination"] = packets["source"][:, 0] >> 32, packets["destination"][:, 0] >> 32
    for name in ("protocol", "source_port", "destination_port"):
        found[name] = packets[name]
    return found


@dataclass(frozen=True, slots=True)
class Sides:
    """The figures of a list: ns a packet by round, build seconds, bytes.

    Ours and the peer's.
    """

    ours_ns: tuple[float, ...]
    theirs_ns: tuple[float, ...]
    ours_build_s: float
    theirs_build_s: float
    ours_bytes: int
    theirs_bytes: int
    way: str

    @property
    def ratios(self) -> list[float]:
        """Ours in theirs, round by round."""
        return [ours / theirs for ours, theirs in zip(self.ours_ns, self.theirs_ns, strict=True)]


def measure(results: Results, *, quick: bool, progress: Progress) -> None:
    """Measure lists of 1,000 and 10,000 rules of three kinds.

    Unless `quick`, also one of 100,000 rules.
    """
    names = [f"cpu_ns_vs_rte_acl_{kind}_{rules // 1000}k" for rules in RULES for kind in KINDS]
    rounds = 5 if quick else 15
    progress(f"a rule changed, of {RULES[-1]}")
    results.figures["cpu_update_us"] = Figure.of([*_updates_us(load_list("acl", RULES[-1]))], "us", Target(500.0))
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = built(Path(folder))
            found = dict(_measure_all_lists(results, program, rounds, quick=quick, progress=progress))
        except Missing as reason:
            for name in ("cpu_ns_vs_rte_acl", *names, "cpu_build_vs_rte_acl_10k", "cpu_ns_vs_rte_acl_100k"):
                results.absent[name] = str(reason)
            return
    _record_sides(results, found)


def _measure_all_lists(
    results: Results, program: Path, rounds: int, *, quick: bool, progress: Progress
) -> Iterator[tuple[tuple[str, int], Sides]]:
    for rules in RULES:
        for kind in KINDS:
            progress(f"rte_acl beside ours: {kind}, {rules} rules")
            yield (kind, rules), _measure_list(results, program, (kind, rules), load_list(kind, rules), rounds)
    if not quick:
        progress(f"rte_acl beside ours: acl, {LONG} rules")
        yield (
            ("acl", LONG),
            _measure_list(results, program, ("acl", LONG), Listed(generate_list("acl", LONG), "generated"), rounds),
        )


def _measure_list(results: Results, program: Path, key: tuple[str, int], made: Listed, rounds: int) -> Sides:
    boxes = made.boxes()
    packets = trace(*key, boxes, PACKETS)
    core = min(os.sched_getaffinity(0))
    with pin_to_core(core), running(program, boxes, packets, core=core, passes=_PASSES) as theirs:
        check(boxes, packets, theirs)
        search, build_s = _built(boxes)
        ours_ns, theirs_ns = [], []
        for _ in range(rounds):
            theirs_ns.append(theirs.ns())
            ours_ns.append(best_ns(lambda: search.first(packets), len(packets)))
        found = Sides(tuple(ours_ns), tuple(theirs_ns), build_s, theirs.build_s, search.shape.bytes, theirs.bytes,
                      theirs.way)  # fmt: skip
    results.notes.append(_describe_sizes(f"{key[0]}_{key[1] // 1000}k", made, search, found))
    return found


def check(boxes: Sequence[Box], packets: Packets, theirs: Peer) -> None:
    """Check that both find the same row for every packet, without flags.

    Raises Drifted.
    """
    ours = Search(Family.IPV4, [five_fields(box) for box in boxes]).first(packets)
    wrong = np.flatnonzero(ours != theirs.rows())
    if len(wrong):
        raise Drifted(f"{len(wrong)} of {len(packets)} packets get another row from rte_acl")


def _built(boxes: Sequence[Box]) -> tuple[Search, float]:
    """A search, and the seconds of making it from columns: the fastest of three."""
    made, found = columns(Family.IPV4, boxes), []
    for _ in range(3):
        began = time.perf_counter()
        search = Search.of(made, share_of(len(boxes)))
        found.append((time.perf_counter() - began, search))
    return found[-1][1], min(spent for spent, _ in found)


def best_ns(call: Callable[[], object], packets: int) -> float:
    """Nanoseconds a packet of the fastest of some calls."""
    spent = []
    for _ in range(_PASSES):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return 1e9 * min(spent) / packets


def _updates_us(made: Listed) -> Iterator[float]:
    """Yield microseconds of changing one rule after another without a rebuild.

    The change ends when packets are asked about the new rule. Raises Drifted where it is not what is found.
    """
    boxes = made.boxes()
    rows = [Placed(2 * place + 1, place, box) for place, box in enumerate(boxes)]
    overlaid = Overlaid.of(Family.IPV4, rows)
    for update in range(_UPDATES):
        changed = rows[update * len(rows) // _UPDATES]
        packet = np.array([record(changed.box.witness())], PACKET)
        first = changed._replace(order=2 * update)  # before all others but those that were changed before it
        began = time.perf_counter()
        overlaid = overlaid.exchange_rows((), (first,))
        found = overlaid.first(packet)[0]
        yield 1e6 * (time.perf_counter() - began)
        before = {
            row.number for row in overlaid.rows() if row.order <= first.order and row.box.holds(packet_of(packet[0]))
        }
        if found not in before:
            raise Drifted(f"rule {first.number} was put before others, and rule {found} is found")


@contextmanager
def pin_to_core(core: int) -> Iterator[None]:
    """Keep this process on one core for the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _record_sides(results: Results, found: dict[tuple[str, int], Sides]) -> None:
    short = {key: sides for key, sides in found.items() if key[1] != LONG}
    means = [statistics.geometric_mean(each) for each in zip(*(sides.ratios for sides in short.values()), strict=True)]
    results.figures["cpu_ns_vs_rte_acl"] = Figure.of(means, "ratio", Target(1.0))
    for (kind, rules), sides in short.items():
        results.figures[f"cpu_ns_vs_rte_acl_{kind}_{rules // 1000}k"] = Figure.of(sides.ratios, "ratio", Target(1.5))
    builds = [sides.ours_build_s / sides.theirs_build_s for (_, rules), sides in found.items() if rules == RULES[1]]
    results.figures["cpu_build_vs_rte_acl_10k"] = Figure.of(builds, "ratio", Target(0.5))
    long = found.get(("acl", LONG))
    if long is None:
        results.absent["cpu_ns_vs_rte_acl_100k"] = "a quick run leaves out the list of 100,000 rules"
    else:
        results.figures["cpu_ns_vs_rte_acl_100k"] = Figure.of(long.ratios, "ratio", Target(1.0))
    for kind in KINDS:
        sizes = [rules for one, rules in found if one == kind]
        for name, pick in ((_OURS, "ours_ns"), (_THEIRS, "theirs_ns")):
            spent = [statistics.median(getattr(found[kind, rules], pick)) for rules in sizes]
            results.series.append(
                Series(f"{name}, {kind}", tuple(map(float, sizes)), tuple(spent), _X, _Y, x_log=True, y_log=True)
            )


def _describe_sizes(name: str, made: Listed, search: Search, sides: Sides) -> str:
    shape = search.shape
    return (
        f"{name} ({made.source}, {len(made.acl.rules):,} rules): "
        f"ours {statistics.median(sides.ours_ns):.1f} ns a packet, built in {1e3 * sides.ours_build_s:.1f} ms, "
        f"{sides.ours_bytes / 1e6:.1f} MB ({shape.trees} trees, {shape.nodes:,} nodes, {shape.blocks:,} blocks); "
        f"rte_acl ({sides.way}) {statistics.median(sides.theirs_ns):.1f} ns, {1e3 * sides.theirs_build_s:.0f} ms, "
        f"{sides.theirs_bytes / 1e6:.1f} MB"
    )

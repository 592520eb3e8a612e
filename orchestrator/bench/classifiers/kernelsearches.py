"""The ways in the kernel: programs built of `_native/ways.bpf.c`, filled, asked about packets, and timed.

A program is run by the kernel itself, many times in a row, on packets that are in its own map; nothing of it is a
network's. It is checked before it is timed: its row for every packet must be the first that holds it.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from orchestrator.bench.classifiers.searchtables import Masked, Recursive, TupleSpace
from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.enforce.drivers.bpf import classifier, classifierlayout, libbpf
from orchestrator.enforce.drivers.bpf.cachefront import NO_STAMP
from orchestrator.enforce.drivers.bpf.layout import FlowSet
from orchestrator.errors import Missing

SAMPLE = 4096
"""Packets that take turns, as many as the program's map holds."""
_NOTHING, _TUPLES, _VECTORS, _CLASSES = "WAY_NOTHING", "WAY_TUPLES", "WAY_VECTORS", "WAY_CLASSES"
MOST_SHAPES, MOST_ENTRIES = 8192, 1 << 16
_SOURCE = Path(__file__).parent / "_native" / "ways.bpf.c"
_PACKET = struct.Struct("<IIHHBBxx")
_FRAME = bytes(64)
_SHOWN = struct.Struct("<II")


Programs = Mapping[str, Path]
"""Object files by way."""


def build(folder: Path, most_cells: int) -> Programs:
    """Compile the programs. Raises Missing where there is no clang, or no headers."""
    if shutil.which("clang") is None:
        raise Missing("classifiers are compared with clang: install the packages clang and libbpf-dev")
    return {way: _compile_program(folder, way, most_cells) for way in (_NOTHING, _TUPLES, _VECTORS, _CLASSES)}


def _compile_program(folder: Path, way: str, most_cells: int) -> Path:
    target = folder / f"{way}.bpf.o"
    native = Path(classifier.__file__).parent / "_native"
    headers = [f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}", f"-I{native}"]
    defined = [f"-D{way}", f"-DMOST_CELLS={most_cells}"]
    command = ["clang", "-O2", "-g", "-target", "bpf", *headers, *defined, "-c", str(_SOURCE), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"the classifiers do not compile (libbpf-dev is needed, too): {done.stderr}")
    return target


class Way:
    """A program in the kernel with some packets."""

    def __init__(self, loaded: libbpf.Loaded, packets: Sequence[Masked]) -> None:
        self._loaded = loaded
        data = b"".join(_PACKET.pack(*packet) for packet in packets)
        libbpf.put_all(loaded.maps["packets"], _number_rows(len(packets)), data, len(packets))

    def row(self, place: int) -> int:
        """The row that is found for the packet of a place."""
        libbpf.put(self._loaded.maps["shown"], 0, _SHOWN.pack(place, 0))
        libbpf.run_repeatedly(self._loaded.program, _FRAME, 1)
        return int(_SHOWN.unpack(libbpf.value(self._loaded.maps["shown"], 0, _SHOWN.size))[1])

    def ns(self, times: int) -> int:
        """Nanoseconds a packet, over so many."""
        libbpf.put(self._loaded.maps["shown"], 0, _SHOWN.pack(0, 0))
        return libbpf.run_repeatedly(self._loaded.program, _FRAME, times)


@contextmanager
def bare(programs: Programs, packets: Sequence[Masked]) -> Iterator[Way]:
    """The program that searches nothing."""
    with _load_program(programs[_NOTHING]) as loaded:
        yield Way(loaded, packets)


@contextmanager
def tuples(programs: Programs, packets: Sequence[Masked], space: TupleSpace) -> Iterator[Way]:
    """Tuple space search. Raises Missing for more shapes or entries than there is room for."""
    if len(space.shapes) >= MOST_SHAPES or len(space.entries) > MOST_ENTRIES:
        raise Missing(f"{len(space.shapes)} shapes and {len(space.entries)} entries have no room")
    with _load_program(programs[_TUPLES]) as loaded:
        shapes = b"".join(_PACKET.pack(*mask) + struct.pack("<I", lowest) for mask, lowest in space.shapes)
        libbpf.put_all(loaded.maps["shapes"], _number_rows(len(space.shapes)), shapes, len(space.shapes))
        keys = b"".join(_PACKET.pack(*masked) + struct.pack("<I", place) for place, masked in space.entries)
        rows = np.array(list(space.entries.values()), "<u4").tobytes()
        libbpf.put_all(loaded.maps["entries"], keys, rows, len(space.entries))
        yield Way(loaded, packets)


@contextmanager
def vectors(programs: Programs, packets: Sequence[Masked], rows: Sequence[CacheRow]) -> Iterator[Way]:
    """The product's own search."""
    with _load_program(programs[_VECTORS]) as loaded:
        _hold(loaded, rows)
        yield Way(loaded, packets)


@contextmanager
def combined_ways(
    programs: Programs, packets: Sequence[Masked], rows: Sequence[CacheRow], made: Recursive
) -> Iterator[Way]:
    """Recursive flow classification."""
    cells = np.concatenate([table.ravel() for table in made.tables]).astype("<u4")
    with _load_program(programs[_CLASSES]) as loaded:
        _hold(loaded, rows)
        libbpf.put_all(loaded.maps["cells"], _number_rows(len(cells)), cells.tobytes(), len(cells))
        first = np.cumsum([0, *(table.size for table in made.tables)])
        heads = b"".join(struct.pack("<II", at, table.shape[1]) for at, table in zip(first, made.tables, strict=False))
        libbpf.put_all(loaded.maps["tables"], _number_rows(len(made.tables)), heads, len(made.tables))
        yield Way(loaded, packets)


@contextmanager
def _load_program(program: Path) -> Iterator[libbpf.Loaded]:
    loaded = libbpf.load(program, {})
    try:
        yield loaded
    finally:
        loaded.close()


def _hold(loaded: libbpf.Loaded, rows: Sequence[CacheRow]) -> None:
    """Load the classifier's tables into a program, in the first half of its maps."""
    with classifier.made_tables(0, rows, lambda _cookie: 0) as made:
        for name, maps in made.items():
            libbpf.stand(loaded.maps[name], maps)
    head = classifierlayout.rule_set(FlowSet(tuple(rows), NO_STAMP), 1, 0, remembers=False)
    if "head" in loaded.maps:
        libbpf.put(loaded.maps["head"], 0, head)


def _number_rows(count: int) -> bytes:
    return np.arange(count, dtype="<u4").tobytes()

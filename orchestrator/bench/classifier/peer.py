"""DPDK's rte_acl as a peer in its own process, without flags and fragments."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify.packets import Packets
from orchestrator.errors import Missing
from orchestrator.policy.fields import BITS_AXES, PROTOCOL
from orchestrator.policy.space import ALL_BYTES, Box, full_set
from orchestrator.policy.spans import Span

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

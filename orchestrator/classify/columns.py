"""One direction of a list, in one IP version, as columns: the common compiled form.

    box 7    tcp, 10.0.0.0/8 ──▶ 198.51.100.0/24, ports 22 and 8000-8999

    rows[7]    source  destination  source_ports  destination_ports  protocols  icmp_types ...  fragments
               3       0            0             5                  1          0               WHOLE
               │       │                          │                  └── sets[1]: 256 bits, of which bit 6 is set
               │       │                          └── ports[port_starts[5] : port_starts[6]] = (22, 22), (8000, 8999)
               └───────┴── addresses[address_starts[3] : address_starts[4]] = one span: its first and last address

A row is a box of `policy.space`: a packet is in it if each of its fields is in the set of that axis. Rows stand in the
order in which they are asked, so the answer for a packet is the lowest row that holds it. Each set is kept once; rows
name it by its number. Spans of a set ascend and neither overlap nor touch. Addresses stand as upper and lower half,
left-aligned in 128 bits, as in `packets.PACKET`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from orchestrator.classify.packets import halves
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BYTES
from orchestrator.policy.space import ALL_BYTES, Box, StandIn, StandIns
from orchestrator.policy.spans import Span, Spans

I32 = npt.NDArray[np.int32]
U16 = npt.NDArray[np.uint16]
U64 = npt.NDArray[np.uint64]

PARTS = ("source", "destination", "source_ports", "destination_ports", *(field.axis for field in BYTES))
"""The axes of which a row names a set by its number; in the column behind them stand the box's fragment classes."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows and the sets that they name. See the module's text; all arrays are C-contiguous."""

    family: Family
    rows: I32
    """(rows, parts + 1): a set's number for each of PARTS, then `space.WHOLE` and `space.LATER` as bits."""
    address_starts: I32
    """(address sets + 1,): where the spans of each set begin in `addresses`, and where the last one's end."""
    addresses: U64
    """(spans, 4): both halves of the first and of the last address."""
    port_starts: I32
    """(port sets + 1,): likewise, in `ports`."""
    ports: U16
    """(spans, 2): the first and the last port."""
    sets: U64
    """(sets, 4): bits 0 to 255 of a set of values of one of BYTES."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)


def columns(family: Family, boxes: Sequence[Box]) -> Columns:
    """Compile boxes of one IP version to columns, in order of evaluation."""
    sets = _Sets()
    rows = [sets.row(box) for box in boxes]
    return Columns(
        family=family,
        rows=np.array(rows, np.int32).reshape(-1, len(PARTS) + 1),
        address_starts=starts_of(sets.addresses),
        addresses=_make_words([_split_ends(family, span) for spans in sets.addresses for span in spans]),
        port_starts=starts_of(list(sets.ports)),
        ports=np.array([ends for spans in sets.ports for ends in spans], np.uint16).reshape(-1, 2),
        sets=_make_words(list(sets.bits)),
    )


class _Sets:
    """The sets on the axes of boxes, each kept once and numbered as they come."""

    def __init__(self) -> None:
        self.addresses: list[Spans] = []
        self.ports: dict[Spans, int] = {}
        self.bits: dict[tuple[int, int, int, int], int] = {}
        self._numbers: dict[StandIn, int] = {}
        self._standins = StandIns()

    def row(self, box: Box) -> tuple[int, ...]:
        """The numbers of a box's sets, in the order of PARTS, and its fragment classes."""
        sides = (self._number_side(side) for side in (box.source, box.destination))
        ports = (self.ports.setdefault(side, len(self.ports)) for side in (box.source_ports, box.destination_ports))
        sets = (
            self._number_set(ALL_BYTES if bits == every else bits)
            for bits, every in zip(_bytes_of(box), _EVERY, strict=True)
        )
        return (*sides, *ports, *sets, box.fragments)

    def _number_side(self, spans: Spans) -> int:
        number = self._numbers.setdefault(self._standins.of(spans), len(self.addresses))
        if number == len(self.addresses):
            self.addresses.append(spans)
        return number

    def _number_set(self, bits: int) -> int:
        words = (bits & _WORD, bits >> 64 & _WORD, bits >> 128 & _WORD, (bits & ALL_BYTES) >> 192)
        return self.bits.setdefault(words, len(self.bits))


_WORD = (1 << 64) - 1
_bytes_of = attrgetter(*(field.axis for field in BYTES))
_EVERY = tuple((1 << (1 << field.bits[Family.IPV4])) - 1 for field in BYTES)
"""The set of every value of each; a narrow one is kept as if it had eight bits."""


def _split_ends(family: Family, span: Span) -> tuple[int, int, int, int]:
    return *halves(family, span.low), *halves(family, span.high)


def _make_words(rows: Sequence[tuple[int, ...]]) -> U64:
    return np.array(rows, np.uint64).reshape(-1, 4)


def starts_of(parts: Sequence[Sequence[object]]) -> I32:
    """Return the start of each part when concatenated, and the end of the last."""
    return np.cumsum([0, *map(len, parts)]).astype(np.int32)

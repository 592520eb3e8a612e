"""A block: some rows of a program in canonical order, and the digest over them.

A block is made from columns, thousands of rows at a time, and edited by lines, a few rows at a time: a line is a row's
canonical bytes (`canonical.py`), and finding, taking out and putting in one among two hundred is a search in a sorted
list. Either form is made from the other when it is asked for, and both have the same digest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.errors import Stale
from orchestrator.program.canonical import HEAD_BYTES, canonical, flow_of, hash_bytes, head_of, line_of, longest_match
from orchestrator.program.flows import Flow, FlowTable


class Line(NamedTuple):
    """A row for sorting and comparing: canonical bytes, and the instructions they hash."""

    data: bytes
    instructions: bytes

    @classmethod
    def of(cls, flow: Flow) -> Line:
        """Return a row as the line of a block."""
        return cls(line_of(flow), flow.instructions)


class Block:
    """Some rows in canonical order.

    Never changes; `digest` and `nbytes` are of the rows' canonical bytes.
    """

    __slots__ = ("_columns", "_count", "_lines", "digest", "nbytes")

    def __init__(self, digest: bytes, nbytes: int, columns: FlowTable | None, lines: Sequence[Line] | None) -> None:
        self.digest = digest
        self.nbytes = nbytes
        self._columns = columns
        self._lines = lines
        self._count = len(columns if columns is not None else lines or ())

    @classmethod
    def of_columns(cls, rows: FlowTable, data: bytes, longest: int) -> Block:
        """Build a block of ordered rows.

        `data` are their canonical bytes, cut behind the `longest` match.
        """
        return cls(_make_digest(data, longest), len(data), rows, None)

    @classmethod
    def of_lines(cls, lines: Sequence[Line]) -> Block:
        """A block of lines that are in order."""
        longest = longest_match([data for data, _ in lines])
        width = HEAD_BYTES + longest
        data = b"".join([each.ljust(width, b"\0") for each, _ in lines])
        return cls(_make_digest(data, longest), len(data), None, lines)

    def __len__(self) -> int:
        return self._count

    def holds(self, line: Line) -> bool:
        """Whether a row is there."""
        place = bisect_left(self.lines, line)
        return place < len(self.lines) and self.lines[place] == line

    def find_row(self, wanted: Flow) -> Flow | None:
        """Return the row with another row's key, cookie and tenant, if it is there.

        Its instructions may differ.
        """
        head = head_of(wanted)
        for place in range(bisect_left(self.lines, Line(head, b"")), len(self.lines)):
            line = self.lines[place]
            if not line.data.startswith(head):
                return None
            row = flow_of(*line)
            if row.match == wanted.match:
                return row
        return None

    @property
    def rows(self) -> FlowTable:
        """The rows as columns."""
        if self._columns is None:
            self._columns = FlowTable.of(flow_of(*line) for line in self.lines)
        return self._columns

    @property
    def lines(self) -> Sequence[Line]:
        """The rows as lines."""
        if self._lines is None:
            self._lines = lines_of(self.rows)
        return self._lines


def lines_of(rows: FlowTable) -> list[Line]:
    """The lines of a table, in the table's order."""
    lists = rows.instruction_set
    pairs = zip(canonical(rows).tolist(), rows.instructions.tolist(), strict=True)
    return [Line(data, lists[index]) for data, index in pairs]


def edit_lines(lines: Sequence[Line], gone: Iterable[Line], come: Iterable[Line]) -> list[Line]:
    """Return ascending lines without some and with others.

    Raises Stale if a line to be removed is not there.
    """
    kept = list(lines)
    for line in gone:
        place = bisect_left(kept, line)
        if place == len(kept) or kept[place] != line:
            raise Stale("a row to be removed is not in the program")
        del kept[place]
    for line in come:
        insort(kept, line)
    return kept


def _make_digest(data: bytes, longest: int) -> bytes:
    return hash_bytes(longest.to_bytes(1, "big") + data)

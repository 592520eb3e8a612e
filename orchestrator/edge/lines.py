"""Ternary Bloom lines: TCAM entries that send a packet to its destination's firewall server.

A line is a word of m ternary bits for some chunks of one server: a bit that the hash of one of them sets is `*`, every
other must be 0. A packet's chunk is hashed to a word with its k bits set; a line matches when all of them are `*` in
it, the first line that matches decides, and without one the packet is dropped.

      chunk  10.1/16 -> bits 0, 7     *  0  0  0  0  *  0  *      the line of both
             10.2/16 -> bits 5, 7     0  1  2  3  4  5  6  7

A line also matches chunks that it does not hold. Nobody's chunks among them leak to a server, which drops them. But a
chunk of another server's would be misdirected, and these are known beforehand. So lines are ordered: a line that holds
a chunk stands before every line of another server that matches it too. Where such wishes go round in a circle, the
chunks concerned get exact entries of their own, before all lines; where those are too many, other hash functions are
tried.

`matches` says which lines match which chunks, for many of both, in C (`_native/matches.c`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.edge import _matches
from orchestrator.edge.hashing import U16, U64, positions
from orchestrator.errors import BadInput, TooLarge

_BLOCK = 8
"""Words that the extension looks at together."""


def matches(bits: npt.NDArray[np.bool_], where: U16, most: int) -> tuple[I64, I64]:
    """Find every pair of a chunk and a matching line, by chunk, then by line.

    `bits` is (lines, width), `where` (chunks, k). Raises TooLarge beyond `most` pairs.
    """
    rows = rows_of(bits)
    try:
        chunk, line = _matches.matches(rows, rows.shape[1], np.ascontiguousarray(where), where.shape[1], most)
    except OverflowError:
        raise _make_too_large(most) from None
    return np.frombuffer(chunk, np.int64), np.frombuffer(line, np.int64)


def rows_of(bits: npt.NDArray[np.bool_]) -> U64:
    """Return for each bit the lines that set it: (width, words), in whole blocks.

    Line 64 w + i is bit i of word w.
    """
    lines, width = bits.shape
    words = -(-lines // (64 * _BLOCK)) * _BLOCK
    padded = np.zeros((width, words * 64), np.bool_)
    padded[:, :lines] = bits.T
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _make_too_large(most: int) -> TooLarge:
    return TooLarge(f"lines match chunks more than {most} times: take fewer chunks a line, or wider lines")


I64 = npt.NDArray[np.int64]

MOST_MATCHES = 1 << 26
"""Lines that match more often than so are of no use, and are refused."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of lines: `width` bits, bases of k hash functions, n chunks a line."""

    width: int
    bases: tuple[int, ...]
    per_line: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.bases) <= self.width:
            raise BadInput(f"{len(self.bases)} functions in a line of {self.width} bits", place="bases")
        if len(set(self.bases)) != len(self.bases) or not all(0 <= basis < 1 << 32 for basis in self.bases):
            raise BadInput("each function needs a basis of its own, in 0..2^32-1", place="bases")
        if self.per_line < 1:
            raise BadInput(f"{self.per_line} chunks a line", place="per_line")


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Lines in matching order, the exceptions in front of them, and figures about both.

    `bits` is (lines, width), True where a bit is `*`; `server` is each line's. `exception` and `exception_server` are
    chunks with exact entries. `holds` is, for each chunk of the allocation, its line. `misdirected` counts the chunks
    that reach a wrong server: 0, unless that was allowed.
    """

    shape: Shape
    bits: npt.NDArray[np.bool_]
    server: I64
    holds: I64
    exception: U64
    exception_server: I64
    misdirected: int = 0

    def __len__(self) -> int:
        return len(self.server)

    def first(self, keys: U64) -> I64:
        """The line that decides each chunk, -1 where none matches; exceptions are not regarded."""
        chunk, line = matches(self.bits, positions(keys, self.shape.bases, self.shape.width), MOST_MATCHES)
        decided = np.full(len(keys), len(self), np.int64)
        np.minimum.at(decided, chunk, line)
        return np.where(decided < len(self), decided, -1)

    def server_of(self, keys: U64) -> I64:
        """The server that packets of each chunk are sent to, -1 where they are dropped."""
        line = self.first(keys)
        found = np.where(line >= 0, self.server[line], -1) if len(self) else np.full(len(keys), -1, np.int64)
        place = np.searchsorted(self.exception, keys)
        place = np.minimum(place, max(len(self.exception) - 1, 0))
        if len(self.exception):
            found = np.where(self.exception[place] == keys, self.exception_server[place], found)
        return found

    @property
    def fill(self) -> float:
        """The share of bits that are `*`, over all lines."""
        return float(self.bits.mean()) if self.bits.size else 0.0

    @property
    def union_rate(self) -> float:
        """The probability that a random chunk matches some line, if lines are independent."""
        rates = self.bits.mean(axis=1) ** len(self.shape.bases)
        return float(-np.expm1(np.log1p(-np.minimum(rates, 1 - 1e-16)).sum())) if len(rates) else 0.0


def build(
    keys: U64, servers: I64, shapes: Iterable[Shape], *, most_exceptions: int, allow_misdirected: bool = False
) -> Lines:
    """Build lines for chunks with the first shape that needs few enough exceptions.

    `keys` are ascending and unique, `servers` are those of the chunks.

    Where none of the shapes does: with `allow_misdirected` those of the shape that needs the fewest, and the chunks
    that are left over reach a wrong server; else raises TooLarge, with what would fit. Raises TooLarge also where lines
    match much too often.
    """
    best: Lines | None = None
    for shape in shapes:
        lines = _build_lines(keys, servers, shape)
        if len(lines.exception) <= most_exceptions:
            return lines
        best = lines if best is None or len(lines.exception) < len(best.exception) else best
    if best is None:
        raise BadInput("no shape was given", place="shapes")
    fewest = len(best.exception)
    if allow_misdirected:
        kept = slice(most_exceptions)
        return replace(
            best,
            exception=best.exception[kept],
            exception_server=best.exception_server[kept],
            misdirected=fewest - most_exceptions,
        )
    raise TooLarge(
        f"{fewest} chunks would reach a wrong server without an entry of their own, and {most_exceptions} entries are "
        f"free: allow so many, or take fewer chunks a line or wider lines"
    )


def _build_lines(keys: U64, servers: I64, shape: Shape) -> Lines:
    where = positions(keys, shape.bases, shape.width)
    line, owner = _shared_out(servers, shape.per_line)
    bits = np.zeros((len(owner), shape.width), np.bool_)
    bits[line[:, None], where] = True
    chunk, matched = matches(bits, where, MOST_MATCHES)
    foreign = owner[matched] != servers[chunk]
    order = _order_lines(len(owner), line[chunk[foreign]], matched[foreign])
    rank = np.empty(len(owner), np.int64)
    rank[order] = np.arange(len(owner))
    first = rank[line]
    np.minimum.at(first, chunk, rank[matched])
    wrong = np.flatnonzero(owner[order][first] != servers)
    return Lines(shape, bits[order], owner[order], rank[line], keys[wrong], servers[wrong])


def _shared_out(servers: I64, per_line: int) -> tuple[I64, I64]:
    """Assign each chunk to a line of its server, filled evenly.

    Returns the line of each chunk and the server of each line.
    """
    line = np.empty(len(servers), np.int64)
    owner: list[int] = []
    for server in np.unique(servers).tolist():
        mine = np.flatnonzero(servers == server)
        count = -(-len(mine) // per_line)
        line[mine] = len(owner) + np.arange(len(mine)) * count // len(mine)
        owner += [server] * count
    return line, np.array(owner, np.int64)


def _order_lines(count: int, before: I64, after: I64) -> I64:
    """Order `count` lines so that `before[i]` precedes `after[i]` for as many i as is easy.

    Lines that nothing must stand before come first; where there is none, that with the fewest wishes against it.
    """
    pairs, weights = np.unique(np.stack([before, after], axis=1), axis=0, return_counts=True) if len(before) else (
        np.empty((0, 2), np.int64), np.empty(0, np.int64))  # fmt: skip
    against = np.bincount(pairs[:, 1], weights=weights, minlength=count).astype(np.int64)
    starts = np.searchsorted(pairs[:, 0], np.arange(count + 1))
    waiting = [(int(wishes), line) for line, wishes in enumerate(against.tolist())]
    heapq.heapify(waiting)
    placed = np.zeros(count, np.bool_)
    order: list[int] = []
    while waiting:
        wishes, line = heapq.heappop(waiting)
        if placed[line] or wishes != against[line]:
            continue
        placed[line] = True
        order.append(line)
        for index in range(int(starts[line]), int(starts[line + 1])):
            other = int(pairs[index, 1])
            if not placed[other]:
                against[other] -= weights[index]
                heapq.heappush(waiting, (int(against[other]), other))
    return np.array(order, np.int64)


def bases(draws: Sequence[int], k: int, tries: int) -> list[tuple[int, ...]]:
    """Return bases for `tries` shapes of `k` functions from drawn numbers.

    Raises BadInput for too few.
    """
    if len(draws) < k * tries or len(set(draws)) != len(draws):
        raise BadInput(f"{k * tries} different numbers are needed", place="draws")
    return [tuple(draws[index * k : (index + 1) * k]) for index in range(tries)]

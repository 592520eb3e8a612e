"""Keep lines up to date as tenants change: additions at once, removals later.

    a new chunk          an exact entry, at once; when these are many, their chunks get lines behind all others
    a chunk that went    its exact entry goes at once; its bits stay in its line (it is *stale*) until a rebuild
    a chunk that moved   both: stale in its old line, an exact entry for its new server

Exact entries are asked before all lines, so they change nothing for others. A line behind all others decides no chunk
that another line or an exact entry decided before; its own chunks that an earlier line of another server takes keep
their exact entries. So whatever comes, no chunk reaches a wrong server, and no line that stands is touched.

Lines are built anew, all of them and with functions that were not used before, when too large a part of what they hold
is stale, when entries or lines run out, when they hold nothing, and when the settings ask for other lines. The result
follows from what was there before, what is there now and the settings alone.

`report` sums the lines up, for operators, metrics and events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from orchestrator.edge.hashing import U64, positions
from orchestrator.edge.lines import I64, Lines, Shape, build, matches
from orchestrator.edge.settings import EdgeSettings
from orchestrator.errors import BadInput
from orchestrator.program.packing import pack, unpack

NO_LINE = -1
"""The line of a chunk that has an exact entry and nothing else."""

_BASES = 1 << 16
_HEAD = struct.Struct("<BHHHIQ")
_VERSION = 1
_SHARE_FOR_NEW = 2
"""Exact entries are folded into lines when they take more than one part in so many of their budget."""
_NO_LINES = "there was no room for more lines"

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """The lines that stand, and who is in them.

    `server` is each line's, in the order in which lines are asked. For each chunk that is somebody's (`key`,
    ascending): its `line` or NO_LINE, and whether it has an `exact` entry. `gone` and `gone_line` are the stale chunks
    of lines. `draw` counts rebuilds; `misdirected` is how many chunks reach a wrong server, where that is allowed.
    """

    shape: Shape
    draw: int
    server: I64
    key: U64
    line: I64
    exact: Flags
    gone: U64
    gone_line: I64
    misdirected: int = 0

    @property
    def stale_share(self) -> float:
        """Of what the lines hold, the share that is nobody's any more."""
        held = int((self.line != NO_LINE).sum())
        return len(self.gone) / (len(self.gone) + held) if len(self.gone) else 0.0

    @property
    def bits(self) -> Flags:
        """(lines, width): the bits of every line, those of stale chunks among them."""
        found = np.zeros((len(self.server), self.shape.width), np.bool_)
        held = self.line != NO_LINE
        for keys, line in ((self.key[held], self.line[held]), (self.gone, self.gone_line)):
            found[line[:, None], positions(keys, self.shape.bases, self.shape.width)] = True
        return found

    def lines(self, servers: I64) -> Lines:
        """Make the lines a switch is given; `servers` are those of the chunks."""
        exception = self.key[self.exact], servers[self.exact]
        return Lines(self.shape, self.bits, self.server, self.line, *exception, self.misdirected)

    def to_bytes(self) -> bytes:
        """The bytes that `standing_of` reads back."""
        shape = self.shape
        head = _HEAD.pack(_VERSION, shape.width, shape.per_line, len(shape.bases), self.draw, self.misdirected)
        bases = struct.pack(f"<{len(shape.bases)}H", *shape.bases)
        steps = np.diff(self.key, prepend=np.uint64(0))
        chunks = pack([steps, (self.line + 1).astype(np.uint64), self.exact.astype(np.uint64)])
        stale = pack([self.gone, self.gone_line.astype(np.uint64)])
        return head + bases + pack([self.server.astype(np.uint64)]) + chunks + stale


def standing_of(data: bytes) -> Standing:
    """Lines from their bytes. Raises BadInput for bytes that are none."""
    if len(data) < _HEAD.size or data[0] != _VERSION:
        raise BadInput("these are not the lines of an edge", place="lines")
    _, width, per_line, k, draw, misdirected = _HEAD.unpack_from(data)
    at = _HEAD.size + 2 * k
    if len(data) < at:
        raise BadInput("the lines are cut off", place="lines")
    bases = struct.unpack_from(f"<{k}H", data, _HEAD.size)
    columns: list[U64] = []
    for count in (1, 3, 2):
        found, size = unpack(data[at:], count)
        columns += found
        at += size
    server, steps, line, exact, gone, gone_line = columns
    return Standing(
        Shape(width, bases, per_line),
        draw,
        server.astype(np.int64),
        np.cumsum(steps, dtype=np.uint64),
        line.astype(np.int64) - 1,
        exact.astype(np.bool_),
        gone,
        gone_line.astype(np.int64),
        misdirected,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The lines after a change; `because` is the reason of a rebuild, or empty."""

    standing: Standing
    because: str = ""


def keep(before: Standing | None, keys: U64, servers: I64, settings: EdgeSettings, seed: str) -> Kept:
    """Bring lines up to date with the present chunks (`keys` ascending, unique) and their servers.

    `seed` makes the functions of one edge other than those of another. Raises TooLarge, with what would fit.
    """
    if before is None:
        return _rebuild(0, keys, servers, settings, seed, "there were none")
    because = _unfit(before, keys, settings)
    if not because:
        after = _follow_chunks(before, keys, servers)
        is_crowded = int(after.exact.sum()) * _SHARE_FOR_NEW > settings.most_exceptions
        if is_crowded and _lines_folded(after, servers) > settings.most_lines:  # known before any is looked at
            because = _NO_LINES
        else:
            after = _fold_exceptions(after, servers) if is_crowded else after
            because = _outgrown(after, settings)
        if not because:
            return Kept(after)
    return _rebuild(before.draw + 1, keys, servers, settings, seed, because)


def _unfit(before: Standing, keys: U64, settings: EdgeSettings) -> str:
    """Why lines cannot be gone on with at all; empty where they can."""
    shape = before.shape
    if (shape.width, len(shape.bases), shape.per_line) != (settings.width, settings.functions, settings.per_line):
        return "the settings ask for other lines"
    return "they held nothing" if len(keys) and not (before.line != NO_LINE).any() else ""


def _outgrown(after: Standing, settings: EdgeSettings) -> str:
    """Why lines that were followed must be built anew; empty where they may stand."""
    if after.stale_share > settings.rebuild_share:
        return f"{len(after.gone)} of the chunks that they held are nobody's any more"
    if int(after.exact.sum()) > settings.most_exceptions:
        return "there was no room for more exceptions"
    return _NO_LINES if len(after.server) > settings.most_lines else ""


def rebuild(before: Standing, keys: U64, servers: I64, settings: EdgeSettings, seed: str, because: str) -> Kept:
    """All lines anew, with other functions. Raises TooLarge."""
    return _rebuild(before.draw + 1, keys, servers, settings, seed, because)


def _rebuild(draw: int, keys: U64, servers: I64, settings: EdgeSettings, seed: str, because: str) -> Kept:
    """Build the edge's lines anew from all keys."""
    counts = np.unique(servers, return_counts=True)[1]
    settings.check_lines(int((-(-counts // settings.per_line)).sum()), len(keys))
    lines = build(
        keys,
        servers,
        _shapes(settings, f"{seed}/{draw}"),
        most_exceptions=settings.most_exceptions,
        allow_misdirected=settings.allow_misdirected,
    )
    exact, none = np.isin(keys, lines.exception), np.empty(0, np.int64)
    standing = Standing(
        lines.shape, draw, lines.server, keys, lines.holds, exact, none.astype(np.uint64), none, lines.misdirected
    )
    return Kept(standing, because)


def _shapes(settings: EdgeSettings, seed: str) -> Iterator[Shape]:
    """Yield shapes to try, one draw of hash functions after the other."""
    for attempt in range(settings.tries):
        yield Shape(settings.width, drawn(f"{seed}/{attempt}", settings.functions), settings.per_line)


def drawn(seed: str, count: int) -> tuple[int, ...]:
    """Draw different 16-bit bases, as many as a switch's hash takes.

    A seed always gives the same.
    """
    found: dict[int, None] = {}
    number = 0
    while len(found) < count:
        found[int.from_bytes(blake2b(f"{seed}/{number}".encode(), digest_size=8).digest(), "big") % _BASES] = None
        number += 1
    return tuple(found)


def _follow_chunks(before: Standing, keys: U64, servers: I64) -> Standing:
    """The standing lines with chunks that came, went and moved; no line changes."""
    here = _places(before.key, keys)
    known = here >= 0
    line = np.where(known, before.line[here] if len(before.key) else NO_LINE, NO_LINE)
    exact = np.where(known, before.exact[here] if len(before.key) else False, True)
    moved = (line != NO_LINE) & (_server_of(before, line) != servers)
    went = (before.line != NO_LINE) & (_places(keys, before.key) < 0)
    gone = np.concatenate([before.gone, keys[moved], before.key[went]])
    gone_line = np.concatenate([before.gone_line, line[moved], before.line[went]])
    line = np.where(moved, NO_LINE, line)
    return replace(before, key=keys, line=line, exact=exact | moved, gone=gone, gone_line=gone_line)


def _places(among: U64, keys: U64) -> I64:
    """Where keys are in an ascending column; -1 for those that are not."""
    if not len(among):
        return np.full(len(keys), -1, np.int64)
    place = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    return np.where(among[place] == keys, place, -1)


def _server_of(standing: Standing, line: I64) -> I64:
    """The servers of lines; -1 for NO_LINE."""
    return np.append(standing.server, -1)[line]


def _lines_folded(standing: Standing, servers: I64) -> int:
    """Count the lines if chunks with only an exact entry had lines too."""
    counts = np.unique(servers[standing.line == NO_LINE], return_counts=True)[1]
    return len(standing.server) + int((counts // standing.shape.per_line).sum())


def _fold_exceptions(standing: Standing, servers: I64) -> Standing:
    """Put chunks that have only an exact entry into full lines behind all others."""
    line, owner = standing.line.copy(), standing.server.tolist()
    alone = np.flatnonzero(line == NO_LINE)
    size = standing.shape.per_line
    for server in np.unique(servers[alone]).tolist():
        mine = alone[servers[alone] == server]
        full = len(mine) // size
        line[mine[: full * size]] = len(owner) + np.arange(full * size) // size
        owner += [server] * full
    folded = alone[line[alone] != NO_LINE]
    after = replace(standing, line=line, server=np.array(owner, np.int64))
    where = positions(after.key[folded], after.shape.bases, after.shape.width)
    chunk, matched = matches(after.bits, where, most=len(folded) * len(owner))
    first = np.full(len(folded), len(owner) - 1, np.int64)
    np.minimum.at(first, chunk, matched)
    exact = after.exact.copy()
    exact[folded] = after.server[first] != servers[folded]
    return replace(after, exact=exact)


@dataclass(frozen=True, slots=True)
class LinesReport:
    """The lines of one IP version.

    `chunks` are somebody's, `in_lines` of them are held by lines, `exceptions` have an entry of their own (some have
    both), `stale` are held by lines and nobody's any more, `misdirected` reach a wrong server. `fill` is the share of
    the lines' bits that are `*`, `union_rate` the probability that an address that is nobody's passes. `draw` counts
    rebuilds.
    """

    chunks: int
    in_lines: int
    lines: int
    exceptions: int
    stale: int
    misdirected: int
    fill: float
    union_rate: float
    draw: int


def report(standing: Standing, lines: Lines) -> LinesReport:
    """Sum up the lines that are in force."""
    return LinesReport(
        chunks=len(standing.key),
        in_lines=int((standing.line != NO_LINE).sum()),
        lines=len(standing.server),
        exceptions=int(standing.exact.sum()),
        stale=len(standing.gone),
        misdirected=standing.misdirected,
        fill=lines.fill,
        union_rate=lines.union_rate,
        draw=standing.draw,
    )

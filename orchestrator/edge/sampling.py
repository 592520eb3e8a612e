"""Compare the planner's rates with real lines by random chunks, matched as the switch would.

A run makes several sets of lines, each with chunks and hash functions of its own, and draws from each as many chunks.
A set's rates scatter, from the draws and from how its lines happened to fill; so what is observed is compared with a
formula by Student's t over the sets,

    t = (mean over sets - predicted) / (standard deviation over sets / sqrt(sets))

which assumes nothing about either scatter. `AGREES` bounds |t|. Draws come from a counter and a seed (splitmix64): the
same run gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.edge import _sampling
from orchestrator.edge.hashing import KEY_BITS, U64
from orchestrator.edge.lines import Lines, Shape, build, rows_of
from orchestrator.errors import BadInput

AGREES = 4.0
"""With 32 sets a right formula goes beyond once in 2,700 runs."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIXES = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1
_TURN = 1 << 22
_SERVERS = 16
_FEWEST_SETS = 2
_MOST_SAMPLES = 10**12
"""Days of drawing."""
_MOST_OF = {"lines": 1 << 20, "width": 4096, "per_line": 1 << 12, "functions": 4096}


@dataclass(frozen=True, slots=True)
class Model:
    """Lines small enough for sampling: `lines` of `width` bits, `per_line` chunks each, k `functions`."""

    lines: int = 512
    width: int = 64
    per_line: int = 4
    functions: int = 11

    def __post_init__(self) -> None:
        for place, most in _MOST_OF.items():
            if not 1 <= getattr(self, place) <= most:
                raise BadInput(f"{getattr(self, place)} is not between 1 and {most}", place=place)

    @property
    def held(self) -> dict[int, int]:
        """How many lines hold so many chunks, as `rates` wants it."""
        return {self.per_line: self.lines}


@dataclass(frozen=True, slots=True)
class Sampled:
    """Observed rates of each set of lines: one line and the union, over `draws` chunks."""

    draws: int
    one_line: tuple[float, ...]
    union: tuple[float, ...]
    misdirected: int

    @property
    def total(self) -> int:
        return self.draws * len(self.union)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Observed beside predicted, and Student's t of their difference."""

    observed: float
    predicted: float
    t: float

    @property
    def agrees(self) -> bool:
        return abs(self.t) <= AGREES


def drawn(seed: int, first: int, count: int, bits: int = KEY_BITS) -> U64:
    """Draw `count` chunks of `bits` bits from number `first` of a seed on."""
    word = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(seed & _WORD)
    for shift, factor in _MIXES:
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return (word ^ (word >> np.uint64(31))) >> np.uint64(64 - bits)


def lines_of(model: Model, seed: int) -> tuple[Lines, U64, int]:
    """Build lines for random chunks and bases.

    Returns them, the chunks, and the number sent to a wrong server.

    Raises BadInput for a seed that draws a chunk twice.
    """
    wanted = model.lines * model.per_line
    keys = np.unique(drawn(seed, 0, wanted))
    if len(keys) < wanted:
        raise BadInput("the seed draws a chunk twice: take another", place="seed")
    servers = np.arange(wanted, dtype=np.int64) // model.per_line % _SERVERS  # every server's lines are full
    bases = tuple(drawn(seed ^ _GOLDEN, 0, model.functions, 32).tolist())
    lines = build(keys, servers, [Shape(model.width, bases, model.per_line)], most_exceptions=wanted)
    return lines, keys, int((lines.server_of(keys) != servers).sum())


def count_matched(lines: Lines, seed: int, first: int, count: int, bits: int = KEY_BITS) -> tuple[int, int]:
    """Count the draws that some line matches, and all matches."""
    rows = rows_of(lines.bits)
    bases = np.array(lines.shape.bases, np.uint32)
    return _sampling.sample(rows, rows.shape[1], bases, lines.shape.width, bits, seed & _WORD, first, count)


def sample(
    model: Model, samples: int, *, seed: int, sets: int = 32, progress: Callable[[int], None] = lambda _: None
) -> Sampled:
    """Draw about `samples` chunks over `sets` sets of lines.

    Calls `progress` with the number drawn so far.

    Chunks that lines hold are among the draws at a rate that 48 bits make negligible. Raises BadInput.
    """
    if sets < _FEWEST_SETS:
        raise BadInput(f"{sets} sets say nothing of how sets scatter: take {_FEWEST_SETS} or more", place="sets")
    draws = samples // sets
    if draws < 1:
        raise BadInput(f"{samples} draws over {sets} sets say nothing: take more", place="samples")
    if samples > _MOST_SAMPLES:
        raise BadInput(f"{samples} draws take more than days: {_MOST_SAMPLES} at most", place="samples")
    one_line: list[float] = []
    union: list[float] = []
    misdirected = 0
    for index in range(sets):
        lines, _, wrong = lines_of(model, seed + 2 * index)
        misdirected += wrong
        some = total = 0
        for first in range(0, draws, _TURN):
            found = count_matched(lines, seed + 2 * index + 1, first, min(_TURN, draws - first))
            some, total = some + found[0], total + found[1]
            progress(index * draws + min(first + _TURN, draws))
        one_line.append(total / draws / model.lines)
        union.append(some / draws)
    return Sampled(draws, tuple(one_line), tuple(union), misdirected)


def compare(observed: Sequence[float], predicted: float) -> Comparison:
    """Student's t of observed values, one a set, against what a formula says."""
    values = np.array(observed)
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    off = float(values.mean()) - predicted
    return Comparison(float(values.mean()), predicted, off / error if error else (0.0 if off == 0 else np.inf * off))

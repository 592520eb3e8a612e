"""The exact rate at which any of many lines matches a foreign chunk.

A chunk's k hashes set D different bits of m (some may be the same), and these bits are the same for every line. A line
that has had k n bits set, X of them different, matches with probability C(X, D)/C(m, D). So the lines of a TCAM are
independent only once D is known, and

    union = sum over D of  P(D) (1 - product over lines of (1 - p(D, n of the line)))

Taking lines as independent from the start puts the mean over D inside, which is never less: where the union is small
they agree, at a union of a half they differ by a hundredth. All is done with logarithms, so that rates of 1e-200 count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from orchestrator.edge.occupancy import best_k, different_bits
from orchestrator.errors import BadInput

F64 = npt.NDArray[np.float64]

_FULL = 40.0
"""Beyond ln(m) + 40 draws a bit, a bit that was never drawn has a probability that a double cannot tell from none."""


def spread(chunks: int, lines: int) -> dict[int, int]:
    """Spread chunks evenly: the number of lines by chunks held, without empty lines.

    Raises BadInput where there is no line.
    """
    if lines < 1:
        raise BadInput("no line is left for chunks: give heavy hitters or forwarding less", place="tcam")
    each, more = divmod(chunks, lines)
    return {held: count for held, count in ((each, lines - more), (each + 1, more)) if held and count}


@functools.lru_cache(maxsize=4096)
def match_rates(m: int, k: int, n: int) -> F64:
    """Return p(D, n): the chance that a line of `n` chunks matches D bits.

    D is in 0..min(k, m), the number of different bits.
    """
    full = math.ceil(m * (math.log(m) + _FULL))
    chance = different_bits(m, min(k * n, full))
    factorials = np.array([math.lgamma(each + 1.0) for each in range(m + 1)])
    bits, asked = np.arange(m + 1)[None, :], np.arange(min(k, m) + 1)[:, None]
    left = np.maximum(bits - asked, 0)
    ways = factorials[bits] - factorials[left] - (factorials[m] - factorials[m - asked])
    rates: F64 = np.minimum(np.where(bits >= asked, np.exp(ways), 0.0) @ chance, 1.0)
    rates.setflags(write=False)
    return rates


def union_of(m: int, k: int, held: Mapping[int, int]) -> float:
    """Return the probability that a foreign chunk matches any line.

    `held` counts the lines of n chunks.
    """
    none = np.zeros(min(k, m) + 1)
    with np.errstate(divide="ignore"):
        for n, lines in held.items():
            none += lines * np.log1p(-match_rates(m, k, n))
    return min(float(_bit_distribution(m, k) @ -np.expm1(none)), 1.0)


def one_line(m: int, k: int, held: Mapping[int, int]) -> float:
    """The mean rate of one line, exactly."""
    lines = sum(held.values())
    return (
        float(sum(count * (_bit_distribution(m, k) @ match_rates(m, k, n)) for n, count in held.items()) / lines)
        if lines
        else 0.0
    )


def _bit_distribution(m: int, k: int) -> F64:
    """The probabilities of D in 0..min(k, m)."""
    return different_bits(m, k)[: min(k, m) + 1]


def functions(m: int, held: Mapping[int, int], most: int) -> int:
    """Return the number of hash functions with the least union, at most `most`.

    Candidates are those that suit one line.
    """
    if not held:
        return 1
    suited = sorted({min(best_k(m, n), most, m) for n in held})
    return min(suited, key=lambda k: union_of(m, k, held))

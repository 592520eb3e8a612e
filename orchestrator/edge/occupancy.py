"""How often a line, or any of many, matches a chunk it does not hold.

A line of m bits that holds n chunks has had kn bits set, some of them twice. With X different ones, a chunk that it
does not hold matches with probability (X/m)^k, for its k bits may repeat as well. The formula that is usually given,
(1 - (1 - 1/m)^(kn))^k, puts the mean of X in its place; since (X/m)^k is convex, that is too low: for /16 chunks of a
cloud of 10^12 VMs by a factor of eight. `exact` sums over the distribution of X.

Of many lines: a chunk's k hashes set D different bits of m (some may be the same), and these bits are the same for
every line. A line that has had kn bits set, X of them different, matches with probability C(X, D)/C(m, D). So the lines
of a TCAM are independent only once D is known, and

    union = sum over D of  P(D) (1 - product over lines of (1 - p(D, n of the line)))

Taking lines as independent from the start puts the mean over D inside, which is never less: where the union is small
they agree, at a union of a half they differ by a hundredth. `union_of` and what it uses work with logarithms, so that
rates of 1e-200 count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput

F64 = npt.NDArray[np.float64]

_FULL = 40.0
"""Beyond ln(m) + 40 draws a bit, a bit that was never drawn has a probability that a double cannot tell from none."""


def formula(m: int, k: int, n: float) -> float:
    """Approximate one line's rate for `m` bits, `k` functions, `n` chunks (also a mean)."""
    return float((1.0 - (1.0 - 1.0 / m) ** (k * n)) ** k)


def best_k(m: int, n: float) -> int:
    """The number of functions that makes `formula` least: (m/n) ln 2, at least 1."""
    return max(1, round(m / n * math.log(2))) if n > 0 else 1


@functools.lru_cache(maxsize=4096)
def exact(m: int, k: int, n: int) -> float:
    """Compute the exact rate of a line of `n` chunks: the mean of (X/m)^k."""
    if n == 0:
        return 0.0
    shares = (np.arange(m + 1) / m) ** k
    return float(different_bits(m, k * n) @ shares)


@functools.lru_cache(maxsize=1024)
def different_bits(m: int, draws: int) -> F64:
    """Return the distribution of X, the different bits after `draws` draws of `m`.

    The probabilities are those of 0..m.

    One draw at a time: a new bit with probability (m - X)/m. O(m * draws).
    """
    chance = np.zeros(m + 1)
    chance[0] = 1.0
    seen = np.arange(m + 1) / m
    for _ in range(draws):
        moved = chance * (1.0 - seen)
        chance *= seen
        chance[1:] += moved[:-1]
    chance.setflags(write=False)
    return chance


def union(rate: float, lines: float) -> float:
    """The probability that any of `lines` independent lines matches: 1 - (1 - rate)^lines."""
    if rate >= 1.0:
        return 1.0 if lines > 0 else 0.0
    return -math.expm1(lines * math.log1p(-rate))


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

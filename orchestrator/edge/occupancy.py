"""How often a line matches a chunk that it does not hold.

A line of m bits that holds n chunks has had kn bits set, some of them twice. With X different ones, a chunk that it
does not hold matches with probability (X/m)^k, for its k bits may repeat as well. The formula that is usually given,
(1 - (1 - 1/m)^(kn))^k, puts the mean of X in its place; since (X/m)^k is convex, that is too low: for /16 chunks of a
cloud of 10^12 VMs by a factor of eight. Here the distribution of X is summed over.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


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

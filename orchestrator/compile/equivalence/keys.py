"""Keys of a list's rules: ascending numbers, with room for insertions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_GAP = 1 << 32
_LAST = 1 << 62
"""A list's rules have multiples of the gap at first, return traffic stands behind all."""
_NEAR = 1 << 16
"""How far from one that came lately the key of the next to it is."""


def first_keys(rules: int, returns: int) -> npt.NDArray[np.int64]:
    """Return keys for rules and, behind them, for return traffic, from scratch."""
    return np.concatenate((np.arange(rules, dtype=np.int64) * _GAP, _LAST + np.arange(returns, dtype=np.int64)))


def keys_between(low: int | None, high: int | None, count: int, came_lately: Sequence[bool]) -> list[int] | None:
    """Return keys between two others, where these exist; None without room.

    Where one of the two came lately and the other did not, more is likely to come between them: rules that are put in
    one by one, each behind or before the last. The keys are then near to that one, for if they halved what is left each
    time, a few dozen would use it up.
    """
    apart = _GAP if low is None or high is None else (high - low) // (count + 1)
    if low is not None and high is not None and any(came_lately) and not all(came_lately):
        apart = min(apart, _NEAR)
    first = low if low is not None else (high or 0) - (count + 1) * apart
    if high is not None and not came_lately[0]:
        first = high - (count + 1) * apart
    return [first + apart * (place + 1) for place in range(count)] if apart else None

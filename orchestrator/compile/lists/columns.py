"""Attributes of many objects as columns, in C (`_native/columns.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _columns
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.ports import PortRange

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def distinct(objects: Sequence[Any], *names: str) -> tuple[list[Any], Indices]:
    """Return the distinct values of attributes, and each object's index into them.

    Values count as distinct when they are different objects.
    """
    values, which = _columns.distinct(objects, names)
    return values, np.frombuffer(which, np.int64)


def prefix_words(prefixes: Sequence[Prefix]) -> Words:
    """Return (n, 4) words: family, both halves of the network in 128 bits, length."""
    return np.frombuffer(_columns.prefixes(prefixes), np.uint64).reshape(-1, 4)


def range_words(ranges: Sequence[PortRange]) -> Words:
    """(n, 2): the lowest and the highest port."""
    return np.frombuffer(_columns.ranges(ranges), np.uint64).reshape(-1, 2)

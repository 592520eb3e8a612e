"""Attributes of many objects as columns, in C (`_native/columns.c`); what stands in where that was not built."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.ports import PortRange

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def _load() -> Any:
    try:
        from orchestrator.compile import _columns  # noqa: PLC0415 -- optional: it takes a C compiler to be there
    except ImportError:
        return None
    return _columns


_extension = _load()
_HALF = (1 << 64) - 1


def distinct(objects: Sequence[Any], *names: str) -> tuple[list[Any], Indices]:
    """The distinct values of an attribute, or tuples of values of several, and which of them each object has.

    Values count as distinct when they are different objects.
    """
    if _extension is None:
        return reference_distinct(objects, *names)
    values, which = _extension.distinct(objects, names)
    return values, np.frombuffer(which, np.int64)


def prefix_words(prefixes: Sequence[Prefix]) -> Words:
    """(n, 4): family, upper and lower half of the network, left-aligned in 128 bits, and length."""
    if _extension is None:
        return reference_prefix_words(prefixes)
    return np.frombuffer(_extension.prefixes(prefixes), np.uint64).reshape(-1, 4)


def range_words(ranges: Sequence[PortRange]) -> Words:
    """(n, 2): the lowest and the highest port."""
    if _extension is None:
        return reference_range_words(ranges)
    return np.frombuffer(_extension.ranges(ranges), np.uint64).reshape(-1, 2)


def reference_distinct(objects: Sequence[Any], *names: str) -> tuple[list[Any], Indices]:
    """`distinct` in Python."""
    values = list(map(attrgetter(*names), objects))
    parts = values if len(names) > 1 else [(value,) for value in values]
    identities = [tuple(map(id, each)) for each in parts]
    places = {each: place for place, each in enumerate(dict.fromkeys(identities))}
    examples = dict(zip(identities, values, strict=True))
    return [examples[each] for each in places], np.array([places[each] for each in identities], np.int64)


def reference_prefix_words(prefixes: Sequence[Prefix]) -> Words:
    """`prefix_words` in Python."""
    rows = [
        (each.family, each.network << 32 if each.family is Family.IPV4 else each.network >> 64,
         0 if each.family is Family.IPV4 else each.network & _HALF, each.length)
        for each in prefixes
    ]  # fmt: skip
    return np.array(rows, np.uint64).reshape(-1, 4)


def reference_range_words(ranges: Sequence[PortRange]) -> Words:
    """`range_words` in Python."""
    return np.array([(each.low, each.high) for each in ranges], np.uint64).reshape(-1, 2)

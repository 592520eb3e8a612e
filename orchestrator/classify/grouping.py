"""Records that begin alike, as one: in C where it was built, else in NumPy, with the same groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


def _load() -> Any:
    try:
        from orchestrator.classify import _search  # noqa: PLC0415 -- optional: it takes a C compiler to be there
    except ImportError:
        return None
    return _search


extension = _load()


def groups(records: npt.NDArray[Any], octets: int) -> tuple[I64, I32]:
    """Records whose first `octets` are the same: the first of each group, ascending, and the group of each record."""
    if extension is None:
        return reference(records, octets)
    first, group = extension.groups(np.ascontiguousarray(records).view(np.uint8), records.itemsize, octets)
    return np.frombuffer(first, np.int64), np.frombuffer(group, np.int32)


def reference(records: npt.NDArray[Any], octets: int) -> tuple[I64, I32]:
    """`groups` in NumPy."""
    beginnings = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), records.itemsize)[:, :octets]
    _, first, group = np.unique(beginnings, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[group.reshape(-1)].astype(np.int32)

"""Records that begin alike, as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _grouping

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


def groups(records: npt.NDArray[Any], size: int) -> tuple[I64, I32]:
    """Group records by their first `size` bytes.

    Returns each group's first, ascending, and the group of each record.
    """
    first, group = _grouping.groups(np.ascontiguousarray(records).view(np.uint8), records.itemsize, size)
    return np.frombuffer(first, np.int64), np.frombuffer(group, np.int32)

from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

def read(
    data: bytes | _Array, starts: _Array, captured: _Array, wire: _Array, links: _Array, out: _Array, /
) -> None: ...
def kinds(
    data: bytes | _Array, starts: _Array, captured: _Array, wire: _Array, links: _Array, /
) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
def spread(
    times: _Array,
    group: _Array,
    fates: _Array,
    weights: _Array | None,
    first: int,
    width: int,
    most: int,
    counts: _Array,
    /,
) -> None: ...

from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

def receive(
    socket: int,
    data: _Array,
    slot: int,
    ids: _Array,
    starts: _Array,
    captured: _Array,
    wire: _Array,
    links: _Array,
    patience_us: int,
    latency_us: int,
    /,
) -> tuple[int, int]: ...
def answer(socket: int, queue: int, before: int, ids: _Array, verdicts: _Array, /) -> int: ...

from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

class Cover:
    def __init__(self, spans: _Array, starts: _Array, plain: _Array) -> None: ...
    def covered(self, state: _Array, points: _Array, start: int, stop: int, left: int, question: int, /) -> int: ...
    def crossings(
        self,
        permits: _Array,
        counts: _Array,
        alone: _Array,
        matters: _Array,
        start: int,
        stop: int,
        left: int,
        question: int,
        told: bool = True,
        /,
    ) -> tuple[bytes, int]: ...
    def deciders(self, counts: _Array, row: int, left: int, question: int, /) -> tuple[bytes | None, int]: ...
    def heirs(
        self, permits: _Array, counts: _Array, row: int, left: int, question: int, /
    ) -> tuple[bytes | None, int]: ...
    def changes(self, permits: _Array, of: _Array, row: int, left: int, question: int, /) -> tuple[bytes, int]: ...
    def before(self, of: _Array, row: int, other: int, /) -> bytes: ...

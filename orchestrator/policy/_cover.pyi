from typing_extensions import Buffer

class Cover:
    def __init__(self, spans: Buffer, starts: Buffer, plain: Buffer) -> None: ...
    def covered(self, state: Buffer, points: Buffer, start: int, stop: int, left: int, question: int, /) -> int: ...
    def crossings(
        self,
        permits: Buffer,
        counts: Buffer,
        alone: Buffer,
        matters: Buffer,
        start: int,
        stop: int,
        left: int,
        question: int,
        told: bool = True,
        /,
    ) -> tuple[bytes, int]: ...
    def deciders(self, counts: Buffer, row: int, left: int, question: int, /) -> tuple[bytes | None, int]: ...
    def heirs(
        self, permits: Buffer, counts: Buffer, row: int, left: int, question: int, /
    ) -> tuple[bytes | None, int]: ...
    def changes(self, permits: Buffer, of: Buffer, row: int, left: int, question: int, /) -> tuple[bytes, int]: ...
    def before(self, of: Buffer, row: int, other: int, /) -> bytes: ...

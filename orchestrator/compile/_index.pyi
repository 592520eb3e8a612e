from typing import Any, final

from typing_extensions import Buffer

@final
class Index:
    def followed(
        self,
        first: Buffer,
        labels: tuple[Buffer, ...],
        atoms: tuple[Buffer, ...],
        gone_label: Buffer,
        gone: Buffer,
        come_label: Buffer,
        come: Buffer,
        touched: Buffer,
        limit: int,
        /,
    ) -> tuple[Index, tuple[bytes, bytes, bytes]] | None: ...

def build(label: Buffer, atoms: Buffer, level: Buffer, /) -> Index: ...
def places(label: Buffer, atoms: Buffer, wanted_label: Buffer, wanted: Buffer, found: Buffer, /) -> None: ...
def merged(
    label: Buffer, atoms: Buffer, gone_label: Buffer, gone: Buffer, come_label: Buffer, come: Buffer, order: Buffer, /
) -> None: ...
def alike(old: tuple[Any, ...], i: int, new: tuple[Any, ...], j: int, step: int, most: int, /) -> int: ...

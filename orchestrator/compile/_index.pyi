from typing import Any, final

from numpy.typing import NDArray
from typing_extensions import Buffer

Column = NDArray[Any] | Buffer

@final
class Index:
    def followed(
        self,
        first: Column,
        labels: tuple[Column, ...],
        atoms: tuple[Column, ...],
        gone_label: Column,
        gone: Column,
        come_label: Column,
        come: Column,
        touched: Column,
        limit: int,
        /,
    ) -> tuple[Index, tuple[bytes, bytes, bytes]] | None: ...

def build(label: Column, atoms: Column, level: Column, /) -> Index: ...
def places(label: Column, atoms: Column, wanted_label: Column, wanted: Column, found: Column, /) -> None: ...
def merged(
    label: Column, atoms: Column, gone_label: Column, gone: Column, come_label: Column, come: Column, order: Column, /
) -> None: ...
def alike(old: tuple[Any, ...], i: int, new: tuple[Any, ...], j: int, step: int, most: int, /) -> int: ...

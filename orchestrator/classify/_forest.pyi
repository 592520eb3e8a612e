from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

def ways() -> list[str]: ...

class Forest:
    def __init__(
        self,
        is_ipv6: bool,
        share: int,
        rows: _Array,
        address_starts: _Array,
        addresses: _Array,
        port_starts: _Array,
        ports: _Array,
        sets: _Array,
        /,
    ) -> None: ...
    def first(self, packets: _Array, out: _Array, way: str, /) -> None: ...
    def pass_over(self, packets: _Array, out: _Array, removed: _Array, /) -> None: ...
    def bytes(self) -> int: ...
    def shape(self) -> tuple[int, int, int, tuple[tuple[int, int, int], ...]]: ...

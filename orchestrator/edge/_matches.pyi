from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

Column = NDArray[Any] | Buffer

def matches(rows: Column, words: int, positions: Column, k: int, most: int, /) -> tuple[bytes, bytes]: ...

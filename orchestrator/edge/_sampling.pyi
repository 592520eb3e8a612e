from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

Column = NDArray[Any] | Buffer

def sample(
    rows: Column, words: int, bases: Column, width: int, bits: int, seed: int, first: int, count: int, /
) -> tuple[int, int]: ...

from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

Column = NDArray[Any] | Buffer

def levels(
    boxes: Column,
    words: Column,
    sequence: Column,
    rule: Column,
    level: Column,
    kind: Column = ...,
    classes: int = ...,
    /,
) -> None: ...

from typing import Any

import numpy.typing as npt

def groups(records: npt.NDArray[Any], size: int, prefix: int, /) -> tuple[bytes, bytes]: ...

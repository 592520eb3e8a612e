"""Read a YAML file of a suite, and say where in it something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from orchestrator.errors import BadInput, Missing

Value = TypeVar("Value")


def read_yaml(path: Path, what: str, parse: Callable[[object], Value], *, instead: str = "give YAML") -> Value:
    """Parse a YAML file.

    Raises BadInput with the file and the place in it, and Missing.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"the {what} cannot be read: {error.strerror}", place=str(path)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not YAML ({' '.join(str(error).split())}): {instead}", place=str(path)) from None
    try:
        return parse(document)
    except BadInput as error:
        raise BadInput(error.reason, place=f"{path}: {error.place}" if error.place else str(path)) from None

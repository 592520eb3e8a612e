"""The extension behind lists brought up to date (`_native/index.c`), and what stands in where it was not built."""

from __future__ import annotations

from typing import Any


def _load() -> Any:
    try:
        from orchestrator.compile import _index  # noqa: PLC0415 -- optional: it takes a C compiler to be there
    except ImportError:
        return None
    return _index


extension = _load()


def _alike(old: tuple[Any, ...], i: int, new: tuple[Any, ...], j: int, step: int, most: int) -> int:
    for count in range(most):
        if old[i + step * count] != new[j + step * count]:
            return count
    return most


alike = _alike if extension is None else extension.alike
"""alike(old, i, new, j, step, most): in how many places from old[i] and new[j] on, at most `most`, two tuples agree."""

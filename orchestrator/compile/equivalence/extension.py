"""The part in C, where it was built."""

from __future__ import annotations

from typing import Any


def _load() -> Any:
    try:
        from orchestrator.compile import _equivalence  # noqa: PLC0415 -- optional: it takes a C compiler to be there
    except ImportError:
        return None
    return _equivalence


NATIVE = _load()
"""The extension module; None: the plain reference does its work, the same but slowly."""

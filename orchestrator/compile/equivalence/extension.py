"""The part in C; where tests put None in its place, references do it."""

from __future__ import annotations

from typing import Any

from orchestrator.compile import _equivalence

NATIVE: Any = _equivalence
"""The extension module."""

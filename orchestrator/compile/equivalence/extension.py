"""The part in C. Tests put None in its place: then the plain references do its work, the same but slowly."""

from __future__ import annotations

from typing import Any

from orchestrator.compile import _equivalence

NATIVE: Any = _equivalence
"""The extension module."""

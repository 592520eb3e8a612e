"""The part in C. In its place, tests put None: then plain references do its work."""

from __future__ import annotations

from typing import Any

from orchestrator.compile import _equivalence

NATIVE: Any = _equivalence
"""The extension module."""

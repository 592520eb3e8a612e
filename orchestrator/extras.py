"""Libraries that only some installations need: each belongs to an extra of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Missing


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Import libraries inside. Raises Missing, which names the extra, where one is not installed."""
    try:
        yield
    except ImportError as error:
        raise Missing(f"{purpose} needs {error.name}: pip install 'aclflow[{extra}]'") from None

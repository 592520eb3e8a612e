"""Libraries that only some installations need: each belongs to an extra of the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import Missing


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Import libraries inside. Raises Missing, which names the extra, where one is not installed."""
    try:
        yield
    except ImportError as error:
        raise Missing(f"{purpose} needs {error.name}: pip install {_describe_source(extra)}") from None


def _describe_source(extra: str) -> str:
    """Return pip's words for an extra: its lock with digests, where there is one."""
    lock = Path(sys.prefix, "share/aclflow/requirements", f"{extra}.txt")
    return f"--require-hashes -r {lock}" if lock.exists() else f"'aclflow[{extra}]'"

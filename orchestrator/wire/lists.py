"""Access lists: their versions, and what is told of them without changing them."""

from __future__ import annotations

import datetime as dt

from orchestrator.wire.common import described, document
from orchestrator.wire.costs import WrittenList


@document()
class AclVersion:
    """A line of a list's history."""

    version: int
    author: str
    created: dt.datetime
    rules: int
    comment: str = described("what its author says about it")


@document(kw_only=True)
class Restored(WrittenList):
    """What taking a version back came to."""

    left_out: tuple[str, ...] = described("rules of that version whose time is over")

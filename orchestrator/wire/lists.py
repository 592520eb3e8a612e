"""Access lists: their versions, and what is told of them without changing them."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import described, document
from orchestrator.wire.costs import WrittenList

FindingKind = Literal[
    "never", "duplicate", "shadowed", "redundant", "conflict", "wide", "expired", "group", "undecided"
]
SeverityWord = Literal["note", "warning", "error"]


@document()
class AclVersion:
    """A line of a list's history."""

    version: int
    author: str
    created: dt.datetime
    rules: int
    comment: str = described("what its author says about it")


@document()
class Unconfirmed:
    """A change of a list that goes back by itself unless it is confirmed in time."""

    version: int
    back_to: int = described("the version that comes back")
    until: dt.datetime


@document(kw_only=True)
class Waiver:
    """A finding that somebody took responsibility for, until a day."""

    id: int
    kind: FindingKind
    rules: tuple[str, ...] = described("the rule that the finding is said of; both rules of a conflict")
    group: str | None = described("the address group, where one is meant")
    author: str
    reason: str
    created: dt.datetime
    ends: dt.datetime = described("from then on the finding counts again")


@document(kw_only=True)
class Restored(WrittenList):
    """What taking a version back came to."""

    left_out: tuple[str, ...] = described("rules of that version whose time is over")

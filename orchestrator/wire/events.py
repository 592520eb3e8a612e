"""The log of events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from orchestrator.eventkinds import KINDS
from orchestrator.wire.common import author_in_words, describe, document

_AUTHOR = frozenset({"by", "by_name"})


@document()
class Event:
    """A line of the log. Ids grow in the order in which things happened."""

    id: int
    time: dt.datetime
    kind: str = describe("clients pass over kinds that they do not know", examples=list(KINDS))
    subject: str = describe("the id of the tenant, the domain or the token that it is about")
    detail: Mapping[str, Any] = describe("`by` is its author, `by_name` what their token was described as then")

    def by(self) -> str:
        """Return its author in words, ``Ann (member 3)``; empty where nobody is named."""
        return author_in_words(str(self.detail.get("by", "")), str(self.detail.get("by_name", "")))

    def facts(self) -> Mapping[str, Any]:
        """Return its detail without the author."""
        return {name: value for name, value in self.detail.items() if name not in _AUTHOR}


@document()
class Events:
    """Events after `marker`. `missed` says that older ones after it were already forgotten."""

    items: tuple[Event, ...]
    next: int | None
    missed: bool

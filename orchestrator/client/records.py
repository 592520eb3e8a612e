"""What answers of all kinds have in common; the values that are of one kind stand beside the calls about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orchestrator.wire import common as wire

Item = TypeVar("Item")
Json = Mapping[str, Any]
"""A JSON object of the service's: its members are checked when a record is made of it, not by the type checker."""


def time_of(text: str | None) -> dt.datetime | None:
    """A time of the API's, which has its zone."""
    return dt.datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some of a list; `next` is the marker of the page that follows, None at the end."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(wire.Written):
    """What a write came to, with what the headers of its answer say. `etag` is for the next write of the same thing."""

    etag: str
    enforced: bool | None = None
    """Whether every host holds it already; None where nobody waited for that (`Client.waiting`)."""
    stages: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where the service's time went, in seconds."""

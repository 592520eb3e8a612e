"""Values that answers of all kinds share."""

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
    """A part of a list; `next` is the next page's marker, None at the end."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(wire.Written):
    """The result of a write, with its answer's headers.

    `etag` is for the next write of the same thing.
    """

    etag: str
    enforced: bool | None = None
    """Whether every host holds it already; None where nobody waited for that (`Client.waiting`)."""
    stages: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where the service's time went, in seconds."""

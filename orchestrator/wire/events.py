"""The log of events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from orchestrator.eventkinds import KINDS
from orchestrator.wire.common import described, document


@document()
class Event:
    """A line of the log. Ids grow in the order in which things happened."""

    id: int
    time: dt.datetime
    kind: str = described("clients pass over kinds that they do not know", examples=list(KINDS))
    subject: str = described("the id of the tenant, the domain or the token that it is about")
    detail: Mapping[str, Any]


@document()
class Events:
    """Events after `marker`. `missed` says that older ones after it were already forgotten."""

    items: tuple[Event, ...]
    next: int | None
    missed: bool

"""The log of events."""

from __future__ import annotations

import datetime as dt

from pydantic import Field

from api.schemas.common import Outgoing
from orchestrator.eventkinds import KINDS
from orchestrator.store.records import Event


class EventBody(Outgoing):
    """A line of the log. Ids grow in the order in which things happened."""

    id: int
    time: dt.datetime
    kind: str = Field(examples=list(KINDS), description="clients pass over kinds that they do not know")
    subject: str = Field(description="the id of the tenant, the domain or the token that it is about")
    detail: dict[str, object]

    @classmethod
    def of(cls, event: Event) -> EventBody:
        return cls(id=event.id, time=event.time, kind=event.kind, subject=event.subject, detail=dict(event.detail))


class EventsBody(Outgoing):
    """Events after `marker`. `missed` says that older ones after it were already forgotten."""

    items: list[EventBody]
    next: int | None
    missed: bool

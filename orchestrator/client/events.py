"""Calls of the client about events."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.client.calls import Calls
from orchestrator.client.records import Page
from orchestrator.client.stream import follow_events
from orchestrator.wire.events import Event, Events


class EventCalls(Calls):
    """Events, as the service tells them."""

    def read(self, *, since: int = 0, limit: int = 100, tenant: str | None = None) -> Page[Event]:
        """Return events after an id, oldest first: all visible ones, or one tenant's."""
        events = self._service.read_document(Events, "/v1/events", limit=limit, marker=since, tenant=tenant)
        return Page(events.items, None if events.next is None else str(events.next))

    def read_newest(self, *, before: int | None = None, limit: int = 100, tenant: str | None = None) -> Page[Event]:
        """The newest events, before an id if one is named, newest first."""
        events = self._service.read_document(
            Events, "/v1/events", limit=limit, marker=before, tenant=tenant, newest=True
        )
        return Page(events.items, None if events.next is None else str(events.next))

    def follow(self, *, after: int | None = None, tenant: str | None = None) -> Iterator[Event]:
        """Yield events for ever, after an id or from now on; reconnect when broken.

        An event of kind ``missed`` says that some were forgotten before they could be read. Raises NotFound (tenant),
        Unauthenticated, and Unreachable when the service does not answer at the beginning.
        """
        return follow_events(lambda headers: self._service.stream("/v1/events", {"tenant": tenant}, headers), after)

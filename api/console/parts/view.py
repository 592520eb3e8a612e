"""One look at a page: session, tenant, reads and writes of the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from nicegui import ui

from api.console.reading import REST
from api.console.sessions import Session
from orchestrator.client import Client, Standing
from orchestrator.client.lists import Part

T = TypeVar("T")


class Parts:
    """The parts of a page that are not drawn yet.

    While there is one, the page says that it is busy.
    """

    def __init__(self, page: ui.element) -> None:
        self._page = page
        self._missing = 1

    def later(self, draw: Callable[[], Awaitable[None]]) -> None:
        """Draw a part that takes its time as soon as the page is shown."""
        self._missing += 1

        async def run_now() -> None:
            try:
                await draw()
            finally:
                self.drawn()

        ui.timer(0.01, run_now, once=True)

    def drawn(self) -> None:
        """One part less is missing."""
        self._missing -= 1
        if not self._missing:
            self._page.props("aria-busy=false")


@dataclass(frozen=True, slots=True)
class View:
    """One look at a page."""

    session: Session
    tenant: str
    """The project that the page is about; empty on pages that are about none."""
    query: Mapping[str, str]
    parts: Parts

    @property
    def client(self) -> Client:
        """The service, as whoever looks."""
        return self.session.client

    async def read(self, key: Hashable, read: Callable[[Client], T], *, fresh_s: float = 1.0, rest: int = REST) -> T:
        """Read from the service, shared with the session's other pages.

        Raises what the client raises.
        """
        return await self.session.reading.get((self.tenant, key), lambda: read(self.client), fresh_s=fresh_s, rest=rest)

    async def standing(self, part: Part) -> Standing:
        """Read a part of the current list's findings and cost, always anew."""
        key, read = (self.tenant, "standing", part), lambda: self.client.acls.read_standing(self.tenant, (part,))
        return await self.session.reading.get(key, read, fresh_s=0.5, rest=0)

    async def do(self, work: Callable[[Client], T]) -> T:
        """Change something through the client, and read everything anew afterwards."""
        try:
            return await self.session.reading.once(lambda: work(self.client))
        finally:
            self.session.reading.forget()

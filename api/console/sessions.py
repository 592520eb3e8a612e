"""Who is signed in.

A browser is known by a signed cookie; what it may do is the service's token that was entered, which stays in this
process' memory and is never written anywhere. Signing out, or an hour of `IDLE_S` without a request, forgets it.
"""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from api.console.draft import Draft
from api.console.reading import Reading
from orchestrator.client import Client, Token

IDLE_S = 12 * 3600.0
COOKIE = "aclflow-console"


@dataclass(eq=False)
class Session:
    """One browser's session."""

    client: Client
    who: Token
    reading: Reading
    drafts: dict[str, Draft] = field(default_factory=dict)
    """By tenant: what is not committed yet."""
    zone: dt.tzinfo = dt.UTC
    project: str | None = None
    seen: float = field(default_factory=time.monotonic)

    @property
    def is_admin(self) -> bool:
        """Whether everything may be seen and done."""
        return self.who.role == "admin"

    @property
    def may_write(self) -> bool:
        """Whether lists may be changed."""
        return self.who.role in ("admin", "member")

    def viewed_from(self, zone: str) -> None:
        """Show times as in a zone such as ``Europe/Berlin``; one that is not known here leaves them as they are."""
        try:
            self.zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return

    def close(self) -> None:
        """Give the connections back."""
        self.client.close()


class Sessions:
    """Every session of this process, by the browser's secret."""

    def __init__(self, url: str, authority: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._authority = authority
        self._clock = clock
        self._open: dict[str, Session] = {}

    def sign_in(self, token: str) -> str:
        """Begin a session with a token of the service; the browser's secret. Blocks.

        Raises Unauthenticated, Unreachable.
        """
        client = Client(self._url, token.strip(), authority=self._authority, timeout_s=10.0)
        try:
            who = client.own_token()
        except BaseException:
            client.close()
            raise
        self._forget_idle()
        secret = secrets.token_urlsafe(32)
        self._open[secret] = Session(client, who, Reading(), project=who.tenant, seen=self._clock())
        return secret

    def of(self, secret: str | None) -> Session | None:
        """The session of a browser, if it has one."""
        session = self._open.get(secret or "")
        if session is None or self._clock() - session.seen > IDLE_S:
            self.sign_out(secret)
            return None
        session.seen = self._clock()
        return session

    def sign_out(self, secret: str | None) -> None:
        """End a session."""
        session = self._open.pop(secret or "", None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """End all."""
        for secret in list(self._open):
            self.sign_out(secret)

    def _forget_idle(self) -> None:
        late = self._clock() - IDLE_S
        for secret in [secret for secret, session in self._open.items() if session.seen < late]:
            self.sign_out(secret)

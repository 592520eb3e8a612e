"""Sessions: the browsers that are signed in, and their tokens.

A browser is known by the secret in its cookie; what it may do is the service's token that was entered, which stays in
this process' memory and is never written anywhere. Signing out, `IDLE_S` without a request, or `LASTS_S` in all forgets
it, and pages that are still open read nothing more. Browsers
that bring the same token share what is read with it: twenty open dashboards of one team ask the service what one would.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from api.console.draftedits import Draft
from api.console.reading import Reading
from orchestrator.client import AclSeen, Client
from orchestrator.errors import Unauthenticated
from orchestrator.wire.enrolment import Token

IDLE_S = 2 * 3600.0
LASTS_S = 12 * 3600.0
"""A session ends so long after it began, whatever is done in it."""
COOKIE = "aclflow-console"


@dataclass(eq=False)
class Bearer:
    """A token, the service as seen with it, and what was read.

    `browsers` have a session with it.
    """

    client: Client
    who: Token
    reading: Reading = field(default_factory=Reading)
    lists: dict[str, AclSeen] = field(default_factory=dict)
    """By tenant: the list as it was read last."""
    browsers: int = 0


@dataclass(eq=False)
class Session:
    """One browser's session."""

    bearer: Bearer
    drafts: dict[str, Draft] = field(default_factory=dict)
    """By tenant: what is not committed yet."""
    operator_drafts: dict[str, Draft] = field(default_factory=dict)
    """By domain: changes of the operator's rules that are not committed yet."""
    zone: dt.tzinfo = dt.UTC
    project: str | None = None
    seen: float = field(default_factory=time.monotonic)
    until: float = math.inf
    """When it ends, whatever is done in it; by `clock`, as `seen`."""
    clock: Callable[[], float] = time.monotonic
    is_ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nobody reads with it any more."""
        return self.is_ended or self.clock() > self.until

    @property
    def client(self) -> Client:
        """The service, as the person who signed in. Raises Unauthenticated where the session is over."""
        if self.is_over:
            raise Unauthenticated("the session is over: sign in again")
        return self.bearer.client

    @property
    def who(self) -> Token:
        """Return the token's description."""
        return self.bearer.who

    @property
    def reading(self) -> Reading:
        """The session's reads of the service, shared by its pages."""
        return self.bearer.reading

    @property
    def is_admin(self) -> bool:
        """Whether everything may be seen and done."""
        return self.who.role == "admin"

    @property
    def may_write(self) -> bool:
        """Whether lists may be changed."""
        return self.who.role in ("admin", "member")

    def forget_tenant(self, tenant: str) -> None:
        """Forget all that is kept of a tenant that is gone."""
        self.drafts.pop(tenant, None)
        self.bearer.lists.pop(tenant, None)
        if self.project == tenant:
            self.project = None

    def viewed_from(self, zone: str) -> None:
        """Show times as in a zone such as ``Europe/Berlin``, if it is known."""
        try:
            self.zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return


class Sessions:
    """Every session of this process, by the browser's secret. Safe between threads."""

    def __init__(
        self,
        url: str,
        authority: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        plain_http: bool = False,
    ) -> None:
        self._url = url
        self._plain_http = plain_http
        self._authority = authority
        self._clock = clock
        self._lock = threading.Lock()
        self.by_secret: dict[str, Session] = {}
        self.bearers: dict[bytes, Bearer] = {}
        """By the digest of their token."""

    def sign_in(self, token: str) -> str:
        """Begin a session with a token of the service; the browser's secret. Blocks.

        Raises Unauthenticated, Unreachable.
        """
        client = Client(
            self._url, token.strip(), authority=self._authority, timeout_s=10.0, plain_http=self._plain_http
        )
        try:
            who = client.tokens.read_own()
        except BaseException:
            client.close()
            raise
        secret = secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.strip().encode()).digest()
        with self._lock:
            self._forget_idle()
            bearer = self.bearers.setdefault(digest, Bearer(client, who))
            bearer.browsers += 1
            now = self._clock()
            self.by_secret[secret] = Session(
                bearer, project=who.tenant, seen=now, until=now + LASTS_S, clock=self._clock
            )
        if bearer.client is not client:
            client.close()
        return secret

    def of(self, secret: str | None) -> Session | None:
        """The session of a browser, if it has one."""
        with self._lock:
            session = self.by_secret.get(secret or "")
            if session is None or not self._is_live(session):
                self._end_session(secret)
                return None
            session.seen = self._clock()
            return session

    def has(self, secret: str | None) -> bool:
        """Return whether a browser has a session; unlike `of`, that does not use it."""
        with self._lock:
            session = self.by_secret.get(secret or "")
            return session is not None and self._is_live(session)

    def sign_out(self, secret: str | None) -> None:
        """End a session."""
        with self._lock:
            self._end_session(secret)

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            for secret in list(self.by_secret):
                self._end_session(secret)

    def _is_live(self, session: Session) -> bool:
        return not session.is_over and self._clock() - session.seen <= IDLE_S

    def _end_session(self, secret: str | None) -> None:
        session = self.by_secret.pop(secret or "", None)
        if session is None:
            return
        session.is_ended = True
        session.bearer.browsers -= 1
        if not session.bearer.browsers:
            self.bearers = {key: each for key, each in self.bearers.items() if each is not session.bearer}
            session.bearer.client.close()

    def _forget_idle(self) -> None:
        late = self._clock() - IDLE_S
        for secret in [secret for secret, each in self.by_secret.items() if each.is_over or each.seen < late]:
            self._end_session(secret)

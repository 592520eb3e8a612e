"""Guard the console's pages: security headers, a limit for wrong tokens, a quiet log.

Headers     every answer forbids frames, foreign content and forms that lead elsewhere; with TLS, all but TLS
Origins     what pages elsewhere send is refused, requests and connections of pages
SignedIn    a browser without a session gets the sign-in page, and no other is made for it
Departures  a client that leaves before its answer is written to no log
Tries       wrong tokens by address: so many in so long, then a pause
own_form    whether a form that is sent was drawn by this console for this browser
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, MutableMapping
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from api.console.sessions import COOKIE
from orchestrator.policy.addresses import find_network

MOST_TRIES, TRIES_S = 10, 60.0
"""So many wrong tokens an address may bring in so long."""
FORM_COOKIE = "aclflow-console-form"
SIGN_IN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""The sign-in page runs its own script and no other."""
PAGES_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'self'"
)
"""Pages are drawn by a library that writes its scripts into them; nothing comes from elsewhere all the same."""

_OPEN, _OPEN_FOLDER = frozenset({"/login", "/session", "/session/end", "/favicon.ico"}), "/console-static/"
"""The paths that a browser gets without a session; none of them makes a page."""
_MOST_ADDRESSES = 10_000
_UNANSWERED = "No response returned."
"""The error of Starlette where a handler ended without an answer, as for a client that has left."""
_TLS_ONLY = "max-age=31536000"
_ALWAYS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Headers:
    """Middleware: adds to every answer what browsers are to keep to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=_with_headers(message))
                for name, value in _ALWAYS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", PAGES_POLICY)
                if came_by_tls(HTTPConnection(scope)):
                    headers["Strict-Transport-Security"] = _TLS_ONLY
            await send(message)

        await self._app(scope, receive, send_bound)


def _with_headers(message: Message) -> MutableMapping[str, object]:
    """A message that has headers, if only none."""
    message.setdefault("headers", [])
    return message


class Origins:
    """Middleware that refuses changes and connections that a page of another origin asks for.

    Browsers say the origin of both. A request that only reads is answered: other pages do not get to see its answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD", "OPTIONS")
        if scope["type"] == "lifespan" or is_read or _is_of_own_page(HTTPConnection(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(1008)(scope, receive, send)
        else:
            refused = Response("do this on a page of this console", 403, media_type="text/plain")
            await refused(scope, receive, send)


class SignedIn:
    """Middleware that leads a browser without a session to the sign-in page.

    The library of the pages makes a page before it looks who asks, and keeps it for a minute; so it is not asked.
    Connections of pages are let through: a browser is told there that its page is no more.
    """

    def __init__(self, app: ASGIApp, has_session: Callable[[str | None], bool]) -> None:
        self._app = app
        self._has_session = has_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN or scope["path"].startswith(_OPEN_FOLDER):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if self._has_session(request.cookies.get(COOKIE)):
            await self._app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/_"):
            await lead_to_sign_in(request)(scope, receive, send)
        else:
            await Response("sign in first", 403, media_type="text/plain")(scope, receive, send)


def lead_to_sign_in(request: Request) -> Response:
    """Return a redirection to the sign-in page, which leads on to what was asked for."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse("/login" if asked == "/" else f"/login?next={quote(asked)}", status_code=303)


class Departures:
    """Middleware: a client that leaves before its answer is no error of the console's.

    Without it anybody fills the log: a request that is cut off in its body costs its sender a few bytes, and the log a
    hundred lines.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_left = False

        async def receive_watching() -> Message:
            nonlocal has_left
            message = await receive()
            has_left = has_left or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, receive_watching, send)
        except RuntimeError as error:
            if not has_left or str(error) != _UNANSWERED:
                raise


class Tries:
    """Count wrong tokens by address.

    IPv6 addresses count by their site's network, for one machine has as many as it likes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    @property
    def addresses(self) -> int:
        """How many addresses tries are kept of."""
        return len(self._wrong)

    def pause_s(self, address: str) -> int:
        """How many seconds an address has to wait before the next try; 0: none."""
        wrong = self._wrong.get(find_network(address))
        if wrong is None or len(wrong) < MOST_TRIES:
            return 0
        return max(0, math.ceil(wrong[0] + TRIES_S - self._clock()))

    def begin(self, address: str) -> None:
        """Count a try as wrong until it is forgiven, beside others under way."""
        site = find_network(address)
        wrong = self._wrong.setdefault(site, deque(maxlen=MOST_TRIES))
        wrong.append(self._clock())
        self._wrong.move_to_end(site)
        while len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def forgive(self, address: str) -> None:
        """Count a try no more: its token was not wrong."""
        wrong = self._wrong.get(find_network(address))
        if wrong:
            wrong.pop()


def own_form(request: Request, sent: str) -> bool:
    """Return whether a form was drawn here for this browser.

    Then it brings what the browser's cookie says.
    """
    kept = request.cookies.get(FORM_COOKIE, "")
    return bool(kept) and hmac.compare_digest(kept.encode(), sent.encode())


def _is_of_own_page(connection: HTTPConnection) -> bool:
    """Return whether a page of this console sends a request.

    So it is, too, where nothing says that another one does.
    """
    origin = connection.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == connection.headers.get("host")


def came_by_tls(connection: HTTPConnection) -> bool:
    """Return whether a browser came by TLS, as seen here or said by a proxy.

    One who says so without need binds nobody but himself.
    """
    return connection.url.scheme == "https" or connection.headers.get("x-forwarded-proto") == "https"


def is_here(request: Request) -> bool:
    """Whether a browser is on this machine, and names it so: the demonstration's."""
    peer = request.client.host if request.client is not None else ""
    names = (peer, "127.0.0.1" if request.url.hostname == "localhost" else request.url.hostname or "")
    try:
        return all(ipaddress.ip_address(name).is_loopback for name in names)
    except ValueError:
        return False

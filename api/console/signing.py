"""Sign in and out by plain forms: the cookie precedes any page.

A form is taken only from the browser that it was drawn for, and an address that brings wrong tokens has to wait. A link
may bring the token behind the ``#`` of ``/login#token=...`` where browser and console are on one machine, as in the
demonstration: browsers keep that part to themselves, so it is in no log; elsewhere it is thrown away.
"""

from __future__ import annotations

import asyncio
import html
import secrets
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from api.bodies import counting
from api.console.guards import FORM_COOKIE, SIGN_IN_POLICY, Tries, came_by_tls, is_here, own_form
from api.console.sessions import COOKIE, LASTS_S, Sessions
from orchestrator.errors import AclflowError, Unauthenticated

_PAGE = Path(__file__).with_name("static") / "login.html"
_HOME = "/"
_AT_ONCE = 8
"""So many tokens are asked about at a time."""
_FORM_BYTES = 1 << 16


class _SmallForm(APIRoute):
    """A route that anybody may send a form to: it is small."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request as FastAPI does, with a body of limited length."""
        await super().handle(scope, counting(receive, _FORM_BYTES), send)


def routes(sessions: Sessions) -> APIRouter:
    """The sign-in page, and what its form and the sign-out button call."""
    router, tries, asking = APIRouter(route_class=_SmallForm), Tries(), asyncio.Semaphore(_AT_ONCE)

    @router.get("/login", response_class=HTMLResponse)
    async def login(request: Request, next: str = _HOME) -> HTMLResponse:  # noqa: A002 -- the query's name
        return _make_sign_in_page(request, next)

    @router.post("/session")
    async def sign_in(
        request: Request,
        token: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = _HOME,  # noqa: A002
        zone: Annotated[str, Form()] = "",
        form: Annotated[str, Form()] = "",
    ) -> Response:
        if not own_form(request, form):
            return _make_sign_in_page(
                request, next, "This form was not made for this browser: sign in with the one below.", 403
            )
        peer = request.client.host if request.client is not None else ""
        async with asking:
            pause = tries.pause_s(peer)
            if pause:
                refused = _make_sign_in_page(
                    request, next, f"Too many wrong tokens from this address: try again in {pause} s.", 429
                )
                refused.headers["Retry-After"] = str(pause)
                return refused
            tries.begin(peer)
            try:
                secret = await asyncio.to_thread(sessions.sign_in, token)
            except Unauthenticated:
                said = "The service does not know this token: it is wrong, expired or revoked."
                return _make_sign_in_page(request, next, said, 401)
            except AclflowError as error:
                tries.forgive(peer)
                return _make_sign_in_page(
                    request, next, f"Nobody could be asked about this token: {error.reason}.", 503
                )
        tries.forgive(peer)
        session = sessions.of(secret)
        if session is not None:
            session.viewed_from(zone)
        answer = RedirectResponse(_local(next), status_code=303)
        is_secure = came_by_tls(request)
        answer.set_cookie(COOKIE, secret, max_age=int(LASTS_S), httponly=True, samesite="lax", secure=is_secure)
        return answer

    @router.post("/session/end")
    async def sign_out(request: Request) -> Response:
        sessions.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _make_sign_in_page(request: Request, following: str, error: str = "", status: int = 200) -> HTMLResponse:
    said = f'<p id="error" class="error" role="alert">{html.escape(error)}</p>' if error else ""
    text, form = _PAGE.read_text(encoding="utf-8"), request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(24)
    for name, value in (
        ("next", html.escape(_local(following))),
        ("error_id", " error" if error else ""),
        ("error", said),
        ("form", html.escape(form)),
        ("links", "yes" if is_here(request) else "no"),
    ):
        text = text.replace("{" + name + "}", value)
    page = HTMLResponse(text, status, {"Cache-Control": "no-store", "Content-Security-Policy": SIGN_IN_POLICY})
    is_secure = came_by_tls(request)
    page.set_cookie(FORM_COOKIE, form, httponly=True, samesite="strict", secure=is_secure)
    return page


def _local(path: str) -> str:
    """A path of this console's; what leads elsewhere is home."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else _HOME

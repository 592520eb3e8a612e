"""Signing in and out: plain forms, so that the cookie is set before any page is drawn.

A link may bring the token behind the ``#`` of ``/login#token=...``: browsers keep that part to themselves, so it is in
no log and no history.
"""

from __future__ import annotations

import asyncio
import html
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from api.console.sessions import COOKIE, Sessions
from orchestrator.errors import AclflowError, Unauthenticated

_PAGE = Path(__file__).with_name("static") / "login.html"
_HOME = "/"


def routes(sessions: Sessions) -> APIRouter:
    """The sign-in page, and what its form and the sign-out button call."""
    router = APIRouter()

    @router.get("/login", response_class=HTMLResponse)
    async def login(next: str = _HOME) -> HTMLResponse:  # noqa: A002 -- the query's name
        return _page(next)

    @router.post("/session")
    async def sign_in(
        request: Request,
        token: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = _HOME,  # noqa: A002
        zone: Annotated[str, Form()] = "",
    ) -> Response:
        try:
            secret = await asyncio.to_thread(sessions.sign_in, token)
        except Unauthenticated:
            return _page(next, "The service does not know this token: it is wrong, expired or revoked.", 401)
        except AclflowError as error:
            return _page(next, f"Nobody could be asked about this token: {error.reason}.", 503)
        session = sessions.of(secret)
        if session is not None:
            session.viewed_from(zone)
        answer = RedirectResponse(_local(next), status_code=303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, secret, httponly=True, samesite="lax", secure=is_secure)
        return answer

    @router.post("/session/end")
    async def sign_out(request: Request) -> Response:
        sessions.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _page(following: str, error: str = "", status: int = 200) -> HTMLResponse:
    said = f'<p id="error" class="error" role="alert">{html.escape(error)}</p>' if error else ""
    text = _PAGE.read_text(encoding="utf-8")
    for name, value in (
        ("next", html.escape(_local(following))),
        ("error_id", " error" if error else ""),
        ("error", said),
    ):
        text = text.replace("{" + name + "}", value)
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def _local(path: str) -> str:
    """A path of this console's; what leads elsewhere is home."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else _HOME

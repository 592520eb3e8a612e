"""Requests and answers over HTTP: headers, problems as errors of ours, pages."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from orchestrator.client.problems import error_of
from orchestrator.client.records import Page, Written
from orchestrator.errors import BadInput, Missing, Unreachable

ANY_VERSION = "*"
"""The If-Match that holds for every version: for writers that mean to win whatever is there."""


class Transport:
    """One connection pool to one service. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout_s: float,
        inner: httpx.BaseTransport | None = None,
        authority: Path | None = None,
    ) -> None:
        headers = {"User-Agent": "aclflow", "Accept": "application/json"}
        if token:
            headers["X-Auth-Token"] = token
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=timeout_s, transport=inner, verify=_trust(authority)
            )
        except httpx.InvalidURL as error:
            raise BadInput(f"'{url}' is not the URL of a service: {error}") from None
        self._timeout_s = timeout_s

    def close(self) -> None:
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | float | None] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        held_s: float = 0.0,
    ) -> httpx.Response:
        """Send a request; `held_s` is how long the service may hold it. Raises the error that a problem stands for.

        `body` is sent as JSON, or as it is when it is bytes already. Parameters that are None are left out.
        """
        content = body if isinstance(body, bytes) else None if body is None else orjson.dumps(body)
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            response = self._http.request(
                method,
                path,
                params={name: value for name, value in (query or {}).items() if value is not None},
                content=content,
                headers=sent,
                timeout=httpx.Timeout(self._timeout_s + held_s, connect=self._timeout_s),
            )
        except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the service at {self._http.base_url} does not answer: {reason}") from error
        if response.status_code >= 400:
            raise error_of(response.status_code, response.content)
        return response

    def read(self, path: str, **query: str | int | float | None) -> Any:
        """GET a JSON document."""
        return json_of(self.ask("GET", path, query=query))

    def page(self, path: str, *, limit: int | None, marker: str | int | None) -> Page[Any]:
        """GET one page of a list."""
        body = self.read(path, limit=limit, marker=marker)
        return Page(tuple(body["items"]), None if body["next"] is None else str(body["next"]))

    def pages(self, path: str, *, limit: int = 1000) -> Iterator[Any]:
        """Every item of a list, page after page."""
        marker: str | None = None
        while True:
            page = self.page(path, limit=limit, marker=marker)
            yield from page.items
            if page.next is None:
                return
            marker = page.next

    def write(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        etag: str | None = None,
        query: Mapping[str, str | int | float | None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a change, on the condition that the thing is still at `etag` (None: no condition)."""
        conditions = {"If-Match": etag} if etag is not None else {}
        return self.ask(method, path, body=body, query=query, headers={**conditions, **(headers or {})})


def _trust(authority: Path | None) -> ssl.SSLContext | bool:
    """Whom to believe: one authority's certificate (PEM), else those that the machine believes."""
    if authority is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise Missing(f"the authority's certificate cannot be read: {error}", place=str(authority)) from None


def written(response: httpx.Response) -> Written:
    """What the answer to a write says."""
    body = json_of(response)
    etag = response.headers.get("ETag", ANY_VERSION)
    return Written(body["generation"], etag, body.get("version", 0), body.get("changed", True))


def json_of(response: httpx.Response) -> Any:
    """The JSON body of an answer. Raises Unreachable when it is none: whoever answers is not the service."""
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{response.request.url} did not answer with JSON: is that the service?") from error

"""Requests and answers over HTTP: headers, problems as errors of ours, pages."""

from __future__ import annotations

import copy
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from orchestrator.client.problems import error_of
from orchestrator.client.records import Written
from orchestrator.client.stream import SILENCE_S
from orchestrator.errors import BadInput, Missing, Unreachable

_STAGE = re.compile(r"(?P<stage>[a-z.]+);dur=(?P<ms>[0-9.]+)")

ANY_VERSION = "*"
"""The If-Match that holds for every version: for writers that mean to win whatever is there."""

EPOCH = "X-Aclflow-Epoch"


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
        self._wait_s: int | None = None

    def waiting(self, wait_s: int) -> Transport:
        """The same connections, where every change asks to be answered when it is enforced (`Prefer: wait`)."""
        twin = copy.copy(self)
        twin._wait_s = wait_s
        return twin

    def close(self) -> None:
        self._http.close()

    def speak_as(self, epoch: int) -> None:
        """Say with every request from now on of which epoch the enforcement point is that we speak for."""
        self._http.headers[EPOCH] = str(epoch)

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
            raise self._unreachable(error) from error
        if response.status_code >= 400:
            raise error_of(response.status_code, response.content)
        return response

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"the service at {self._http.base_url} does not answer: {reason}")

    def read(self, path: str, **query: str | int | float | None) -> Any:
        """GET a JSON document."""
        return json_of(self.ask("GET", path, query=query))

    def bodies(self, path: str, *, limit: int = 1000) -> Iterator[Any]:
        """The pages of a list, one after the other."""
        marker: str | int | None = None
        while True:
            body = self.read(path, limit=limit, marker=marker)
            yield body
            marker = body["next"]
            if marker is None:
                return

    def pages(self, path: str, *, limit: int = 1000) -> Iterator[Any]:
        """Every item of a list, page after page."""
        for body in self.bodies(path, limit=limit):
            yield from body["items"]

    @contextmanager
    def stream(
        self, path: str, query: Mapping[str, str | int | float | None], headers: Mapping[str, str]
    ) -> Iterator[httpx.Response]:
        """GET something that goes on; the block reads it. Raises what `ask` raises until it has begun."""
        asked = {name: value for name, value in query.items() if value is not None}
        patience = httpx.Timeout(self._timeout_s, read=SILENCE_S)
        with ExitStack() as stack:
            try:
                response = stack.enter_context(
                    self._http.stream("GET", path, params=asked, headers=dict(headers), timeout=patience)
                )
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise self._unreachable(error) from error
            if response.status_code >= 400:
                raise error_of(response.status_code, response.read())
            yield response

    def chunks(self, response: httpx.Response) -> Iterator[bytes]:
        """The octets of a stream as they come. Raises Unreachable when it breaks."""
        try:
            yield from response.iter_raw()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

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
        stated = {"If-Match": etag} if etag is not None else {}
        if self._wait_s is not None:
            stated["Prefer"] = f"wait={self._wait_s}"
        stated |= headers or {}
        return self.ask(method, path, body=body, query=query, headers=stated, held_s=self._wait_s or 0.0)


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
    enforced = response.headers.get("X-Aclflow-Enforced")
    return Written(
        generation=body["generation"],
        etag=etag,
        version=body.get("version", 0),
        changed=body.get("changed", True),
        enforced=None if enforced is None else enforced == "true",
        stages=_stages(response.headers.get("Server-Timing", "")),
    )


def _stages(timing: str) -> dict[str, float]:
    """Seconds by stage from a Server-Timing header; what is not of that form is passed over."""
    found = (_STAGE.fullmatch(entry.strip()) for entry in timing.split(","))
    return {match["stage"]: float(match["ms"]) / 1000 for match in found if match}


def json_of(response: httpx.Response) -> Any:
    """The JSON body of an answer. Raises Unreachable when it is none: whoever answers is not the service."""
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{response.request.url} did not answer with JSON: is that the service?") from error

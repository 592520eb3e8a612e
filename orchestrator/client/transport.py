"""Requests and answers over HTTP: headers, problems as errors of ours, pages."""

from __future__ import annotations

import copy
import datetime as dt
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson

from orchestrator.client.backoff import delay_s
from orchestrator.client.connections import BROKEN, Answer, Connections, Streamed
from orchestrator.client.problems import error_of, has_changed_nothing
from orchestrator.client.records import Written
from orchestrator.client.stream import SILENCE_S
from orchestrator.errors import AclflowError, BadInput, Missing, Unauthenticated, Unreachable
from orchestrator.identity.trust import client_context
from orchestrator.wire import common as wire
from orchestrator.wire.codec import decode

Document = TypeVar("Document")

_STAGE = re.compile(r"(?:^|,)\s*([a-z.]+);dur=([0-9.]+)\s*(?=,|$)")

ANY_VERSION = "*"
"""The If-Match that holds for every version: for writers that mean to win whatever is there."""

EPOCH = "X-Aclflow-Epoch"
_RETRY_AFTER = "Retry-After"

Asked = str | int | float | Sequence[str] | None
"""A parameter of a query: left out where it is None, said several times where it is several words."""

_CHUNK_BYTES = 1 << 16


class Transport:
    """The way to one service. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout_s: float,
        inner: Connections | None = None,
        trust: ssl.SSLContext | None = None,
        patience_s: float = 0.0,
        *,
        plain_http: bool = False,
    ) -> None:
        self._patience_s = patience_s
        self._headers = {"User-Agent": "aclflow", "Accept": "application/json"}
        if token:
            self._headers["X-Auth-Token"] = token
        self._http = inner or Connections(url, trust, plain_http=plain_http)
        self._is_certified = trust is not None
        self._url = url
        self._timeout_s = timeout_s
        self._wait_s: int | None = None

    def waiting(self, wait_s: int) -> Transport:
        """Return the same connections with changes answered when enforced (`Prefer: wait`)."""
        twin = copy.copy(self)
        twin._wait_s = wait_s
        return twin

    def close(self) -> None:
        self._http.close()

    def reconnect(self, trust: ssl.SSLContext) -> None:
        """Make new connections from now on, by `trust`; requests under way end on theirs."""
        self._http.reconnect(trust)

    def show_token(self, token: str) -> None:
        """Show another token in every request from now on."""
        self._headers["X-Auth-Token"] = token

    def speak_as(self, epoch: int) -> None:
        """Name the epoch of our enforcement point in every request from now on."""
        self._headers[EPOCH] = str(epoch)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Asked] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        held_s: float = 0.0,
    ) -> Answer:
        """Send a request; raise the error of a problem.

        A refusal that changed nothing (429, 503) is answered by sending it again, as long as our patience lasts.
        `held_s` is how long the service may hold it.

        `body` is sent as JSON, or as it is when it is bytes already. Parameters that are None are left out.
        """
        content = body if isinstance(body, bytes) else None if body is None else orjson.dumps(body)
        sent = {**self._headers, **(headers or {})}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        target = _with_query(path, query or {})
        send = partial(self._http.ask, method, target, sent, content, timeout_s=self._timeout_s, held_s=held_s)
        until = time.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                response = send()
            except BROKEN as error:
                raise self._unreachable(error) from error
            if response.status_code < 400:
                return response
            failures += 1
            refused = error_of(response.status_code, response.content, response.headers.get(_RETRY_AFTER))
            wait_s = delay_s(failures, refused)
            if time.monotonic() + wait_s > until or not has_changed_nothing(response.status_code, response.content):
                raise refused
            time.sleep(wait_s)

    def _unreachable(self, error: Exception) -> AclflowError:
        """Return the error for a broken connection, with its reason."""
        if isinstance(error, ssl.SSLError):
            return tls_fault(self._url, error)
        reason = str(error) or type(error).__name__
        if self._is_certified and isinstance(error, RemoteDisconnected):  # asyncio closes without TLS's alert
            reason += "; if its authority was rolled over since this machine enrolled, enrol again with a new token"
        return Unreachable(f"the service at {self._url} does not answer: {reason}")

    def read(self, path: str, **query: Asked) -> Any:
        """GET a JSON document."""
        return json_of(self.ask("GET", path, query=query))

    def read_document(self, kind: type[Document], path: str, **query: Asked) -> Document:
        """GET a document of a kind. Raises Unreachable for an answer that is none."""
        return document_of(kind, self.ask("GET", path, query=query))

    def documents(self, kind: type[Document], path: str, **query: Asked) -> Iterator[Document]:
        """Return every document of a list, page after page."""
        for page in self.bodies(path, limit=1000, **query):
            yield from _read(tuple[kind, ...], page["items"], path)  # type: ignore[valid-type]

    def document_pages(self, kind: type[Document], path: str, **query: Asked) -> Iterator[Document]:
        """Return the pages of a list that are documents of their own."""
        for page in self.bodies(path, limit=1000, **query):
            found: Document = _read(kind, page, path)
            yield found

    def bodies(self, path: str, *, limit: int = 1000, **query: Asked) -> Iterator[Any]:
        """The pages of a list, one after the other."""
        marker: str | int | None = None
        while True:
            body = self.read(path, limit=limit, marker=marker, **query)
            yield body
            marker = body["next"]
            if marker is None:
                return

    def pages(self, path: str, *, limit: int = 1000, **query: Asked) -> Iterator[Any]:
        """Every item of a list, page after page."""
        for body in self.bodies(path, limit=limit, **query):
            yield from body["items"]

    @contextmanager
    def stream(self, path: str, query: Mapping[str, Asked], headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """GET an endless stream of bytes.

        Its iterator raises Unreachable where it breaks.

        Raises what `ask` raises until it has begun.
        """
        sent, target = {**self._headers, **headers}, _with_query(path, query)
        with ExitStack() as stack:
            try:
                going_on = self._http.stream(target, sent, timeout_s=self._timeout_s, silence_s=SILENCE_S)
                response = stack.enter_context(going_on)
                refusal = response.read() if response.status >= 400 else b""
            except BROKEN as error:
                raise self._unreachable(error) from error
            if response.status >= 400:
                raise error_of(response.status, refusal, response.headers.get(_RETRY_AFTER))
            yield self._chunks(response)

    def _chunks(self, response: Streamed) -> Iterator[bytes]:
        """Yield an answer's bytes as they come. Raises Unreachable."""
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                yield chunk
        except BROKEN as error:
            raise self._unreachable(error) from error

    def write(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        etag: str | None = None,
        query: Mapping[str, Asked] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a change on condition of `etag` (None: no condition)."""
        stated = {"If-Match": etag} if etag is not None else {}
        if self._wait_s is not None:
            stated["Prefer"] = f"wait={self._wait_s}"
        stated |= headers or {}
        return self.ask(method, path, body=body, query=query, headers=stated, held_s=self._wait_s or 0.0)


def _with_query(path: str, query: Mapping[str, Asked]) -> str:
    stated = {name: _words(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(stated, doseq=True)}" if stated else path


def _words(value: str | float | Sequence[str]) -> list[str]:
    """Return the texts of a query parameter's value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, bool):
        return [str(value).lower()]
    return [str(value)] if isinstance(value, int | float) else [*value]


def trust_of(authority: Path | None) -> ssl.SSLContext | None:
    """Return how to check a service's certificate: by one authority, or the machine's own.

    `authority` is a file of PEM; None: the authorities that the machine believes.

    Raises Missing for a file that cannot be read or is none.
    """
    if authority is None:
        return None
    try:
        return client_context(authority.read_text())
    except OSError as error:
        raise Missing(f"the authority's certificate cannot be read: {error}", place=str(authority)) from None
    except (BadInput, UnicodeDecodeError):
        raise Missing("the authority's certificate cannot be read: it is not PEM", place=str(authority)) from None


def generation_of(response: Answer) -> int:
    """The generation that an answer to a write names."""
    return int(json_of(response)["generation"])


def written(response: Answer) -> Written:
    """Return the result of a write from its answer."""
    said, enforced = document_of(wire.Written, response), response.headers.get("X-Aclflow-Enforced")
    return Written(
        version=said.version,
        generation=said.generation,
        changed=said.changed,
        proposal=said.proposal,
        etag=response.headers.get("ETag", ANY_VERSION),
        enforced=None if enforced is None else enforced == "true",
        stages=_stages(response.headers.get("Server-Timing", "")),
    )


def document_of(kind: type[Document], response: Answer) -> Document:
    """Return the document that an answer carries. Raises Unreachable for an answer that is none."""
    found: Document = _read(kind, json_of(response), response.url)
    return found


def _read(kind: Any, body: object, url: str) -> Any:
    try:
        return decode(kind, body)
    except BadInput as error:
        raise Unreachable(f"{url} did not answer as the service does: {error}") from None


def _stages(timing: str) -> dict[str, float]:
    """Return seconds by stage from a Server-Timing header.

    Other forms are passed over.
    """
    return {stage: float(ms) / 1000 for stage, ms in _STAGE.findall(timing)}


def json_of(response: Answer) -> Any:
    """Return an answer's JSON body.

    Raises Unreachable when it is none: the answer is not from the service.
    """
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{response.url} did not answer with JSON: is that the service?") from error


_NOT_YET, _ENDED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's numbers (X509_V_ERR_...)."""


def tls_fault(url: str, error: ssl.SSLError) -> AclflowError:
    """Unauthenticated where the service does not take our certificate, Unreachable for everything else: whoever does
    answer may not be the service, and the service may come back."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"who answers at {url} is not the service that this machine knows: {_doubt(error)}")
    words = (error.reason or "").lower()
    if "alert" in words and ("certificate" in words or "unknown_ca" in words):
        said = words.rpartition("alert_")[2].replace("_", " ")
        return Unauthenticated(
            f"the service at {url} does not take this machine's certificate ({said}): enrol again with a new token"
        )
    return Unreachable(f"the service at {url} does not speak TLS with us: {words.replace('_', ' ') or error}")


def _doubt(error: ssl.SSLCertVerificationError) -> str:
    """Say in words why the service's certificate is not believed."""
    match error.verify_code:
        case code if code in (_NOT_YET, _ENDED):
            when = "has ended" if code == _ENDED else "is not valid yet"
            return f"its certificate {when}; this machine's clock says {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
        case code if code in (_OTHER_HOST, _OTHER_ADDRESS):
            return f"its certificate is for others ({error.verify_message}): see the service's --tls-name"
        case _:
            return (
                f"its certificate is not of the authority that is believed here ({error.verify_message}); if the "
                "service's authority was rolled over while this machine was away, enrol it again with a new token"
            )

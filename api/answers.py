"""Bodies, ETags and pages on their way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import orjson
from fastapi import Request, Response
from pydantic import BaseModel

from orchestrator.store.records import Reply
from orchestrator.wire.codec import encode

GENERATION = "X-Aclflow-Generation"
_JSON = "application/json"


def dumped(body: object) -> bytes:
    """A body as JSON. Text that no JSON can carry is written with escapes instead of failing."""
    if isinstance(body, BaseModel):
        return body.model_dump_json().encode()
    try:
        return encode(body)
    except orjson.JSONEncodeError:
        return encode(_speakable(body))


def _speakable(value: object) -> object:
    """The same value without halves of surrogate pairs, which come in through escapes in a request."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_speakable(key): _speakable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_speakable(each) for each in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {each.name: _speakable(getattr(value, each.name)) for each in fields(value)}
    return value


def etag(version: int | str) -> str:
    """The ETag of a version."""
    return f'"{version}"'


def answer(body: object, *, tag: str | None = None, request: Request | None = None) -> Response:
    """What was asked for. With `request` and `tag`, 304 when the caller has it already (If-None-Match)."""
    sent = {"Cache-Control": "no-cache", **({"ETag": tag} if tag else {})}
    if request is not None and tag is not None and tag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=sent)
    return Response(dumped(body), 200, sent, _JSON)


def reply(
    body: object,
    *,
    generation: int | None = None,
    tag: str | None = None,
    location: str | None = None,
) -> Reply:
    """What a write came to, to be kept for an idempotency key or sent. With a location it is 201, something new."""
    headers = {
        **({GENERATION: str(generation)} if generation is not None else {}),
        **({"ETag": tag} if tag else {}),
        **({"Location": location} if location else {}),
    }
    return Reply(201 if location else 200, headers, dumped(body))


def sent(kept: Reply) -> Response:
    """A reply as an answer."""
    return Response(kept.body, kept.status, dict(kept.headers), _JSON)

"""Bodies, ETags and pages on their way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeVar

import orjson
from fastapi import Request, Response
from pydantic import BaseModel
from starlette.types import Message, Receive, Scope, Send

from orchestrator.control.writequeue import Written
from orchestrator.errors import BadInput
from orchestrator.store.records import Reply
from orchestrator.wire.codec import encode
from orchestrator.wire.common import Page

GENERATION = "X-Aclflow-Generation"
GENERATIONS = "aclflow.generations"
"""In the message that begins an answer: the domains that the write moved, and to which generation."""
_JSON = "application/json"


def dump_json(body: object) -> bytes:
    """A body as JSON.

    Text that no JSON can carry is written with escapes instead of failing.
    """
    if isinstance(body, BaseModel):
        return body.model_dump_json().encode()
    try:
        return encode(body)
    except orjson.JSONEncodeError:
        return encode(_speakable(body))


def _speakable(value: object) -> object:
    """Return a value without halves of surrogate pairs.

    They come in through escapes in a request.
    """
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
    """Answer a read; with `request` and `tag`, 304 where the caller has it already."""
    sent = {"Cache-Control": "no-cache", **({"ETag": tag} if tag else {})}
    if request is not None and tag is not None and tag in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=sent)
    return Response(dump_json(body), 200, sent, _JSON)


def reply(
    body: object,
    *,
    generation: int | None = None,
    tag: str | None = None,
    location: str | None = None,
) -> Reply:
    """The result of a write, to be kept for an idempotency key or sent.

    With a location it is 201, something new.
    """
    headers = {
        **({GENERATION: str(generation)} if generation is not None else {}),
        **({"ETag": tag} if tag else {}),
        **({"Location": location} if location else {}),
    }
    return Reply(201 if location else 200, headers, dump_json(body))


def answer_write(done: Written[Reply] | Reply) -> Response:
    """Answer a write."""
    return WrittenResponse(done) if isinstance(done, Written) else Response(*_split_reply(done))


def _split_reply(kept: Reply) -> tuple[bytes, int, dict[str, str], str]:
    return kept.body, kept.status, dict(kept.headers), _JSON


class WrittenResponse(Response):
    """The answer to a write.

    The message that begins it says which domains moved, for `waiting.py`.
    """

    def __init__(self, written: Written[Reply]) -> None:
        super().__init__(*_split_reply(written.answer))
        self._generations = written.generations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_stating(message: Message) -> None:
            if message["type"] == "http.response.start":
                message[GENERATIONS] = self._generations
            await send(message)

        await super().__call__(scope, receive, send_stating)


Key = TypeVar("Key", bound=str)
Item = TypeVar("Item")


def page_after(names: Sequence[Key], limit: int, marker: str | None) -> tuple[Sequence[Key], Key | None]:
    """Return a page of names after `marker`, and the next page's marker.

    It has at most `limit` names. Raises BadInput when the marker is none of the names: it was removed meanwhile, so its
    place is not known any more.
    """
    start = 0
    if marker is not None:
        try:
            start = names.index(marker) + 1
        except ValueError:
            raise BadInput(f"'{marker}' is not there any more: begin anew", place="query.marker") from None
    end = start + limit
    return names[start:end], names[end - 1] if end < len(names) else None


def page_of(found: Mapping[str, Item], limit: int, marker: str | None) -> Page[Item]:
    """Return a page of items by name, or by another key, in their order.

    Raises BadInput as `page_after`.
    """
    names, following = page_after(list(found), limit, marker)
    return Page(tuple(found[name] for name in names), following)

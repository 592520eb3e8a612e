"""Events as they happen: the other end of the service's `text/event-stream`.

A broken connection is taken up again where it broke, by the id of the last event; so what is read has no gaps, but
where the service says that it has forgotten events (kind ``missed``).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import orjson

from orchestrator.client.backoff import delay_s
from orchestrator.errors import BadInput, TryAgain, Unreachable
from orchestrator.wire.codec import decode
from orchestrator.wire.events import Event

MEDIA_TYPE = "text/event-stream"
MISSED = "missed"
"""The kind of an event that is none: events after the last one read were forgotten before they could be sent."""

SILENCE_S = 60.0
"""A stream of which nothing was heard for so long is broken: its heart beats every 15 seconds."""

Connect = Callable[[Mapping[str, str]], AbstractContextManager[Iterable[bytes]]]
"""Opens the stream with some headers; its bytes as they come. Raises what a refused or failed request raises."""


def missed_after(after: int) -> Event:
    """Return what stands for events after an id that were forgotten before they were read."""
    return Event(after, dt.datetime.now(dt.UTC), MISSED, "", {"after": after})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of an event stream."""

    id: str
    event: str
    data: str


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Yield the messages of a stream's lines, as HTML's EventSource does.

    An unfinished one at the end is dropped.
    """
    last_id, event = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield Message(last_id, event, "\n".join(data))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


def follow_events(
    connect: Connect, after: int | None, *, retry_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Event]:
    """Events after an id (None: from now on), for ever.

    A connection that breaks is made anew; errors of the first one, and of any that the service refuses, are raised.
    """
    connected, failures = False, 0
    while True:
        error: TryAgain | None = None
        seen = {"Last-Event-ID": str(after)} if after is not None else {}
        try:
            with connect({"Accept": MEDIA_TYPE, **seen}) as chunks:
                connected = True
                for event in _events(chunks, after):
                    after, failures = event.id, 0
                    yield event
        except TryAgain as refused:  # also where it broke while it was read
            if not connected:
                raise
            error = refused
        failures += 1
        sleep(delay_s(failures, error, first_s=retry_s))


def _events(chunks: Iterable[bytes], after: int | None) -> Iterator[Event]:
    """Read events from pieces of a stream."""
    for message in messages(_lines(chunks)):
        try:
            body = orjson.loads(message.data)
            if message.event == MISSED:
                yield missed_after(after or 0)
            else:
                yield decode(Event, body)
        except (ValueError, BadInput) as error:
            raise Unreachable("the service's events cannot be read: is that the service?") from error


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Cut pieces of a stream into lines."""
    begun = b""
    for chunk in chunks:
        *lines, begun = (begun + chunk).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)

"""`aclflow events`: what happened, and what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.terminal import json_line, say, say_json
from orchestrator.client import Client
from orchestrator.wire.events import Event

_PAGE = 1000


@taking
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")] = False,
    since: Annotated[int | None, typer.Option("--since", min=0, help="Begin after the event of this id.")] = None,
    last: Annotated[int, typer.Option("--last", min=0, help="Without --since: begin with so many of the newest.")] = 20,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", "-t", help="Only what is about this one.", autocompletion=complete.tenants),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only these kinds.", autocompletion=complete.kinds)
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened, oldest first: changes, what is enforced, hosts that refuse, rules about to expire.

    Administrators see everything, tenants what is about them. With --follow, --json prints one object a line.
    """
    wanted = frozenset(kind or ())
    with service(url) as client:
        past = deque(_past(client, since or 0, tenant), maxlen=None if since is not None else last)
        read = max(past[-1].id if past else 0, since or 0)
        chosen = [event for event in past if not wanted or event.kind in wanted]
        if as_json and not follow:
            say_json(chosen)
            return
        _say(chosen, as_json=as_json)
        if follow:
            coming = client.follow_events(after=read, tenant=tenant)
            _say((event for event in coming if not wanted or event.kind in wanted), as_json=as_json)


def _past(client: Client, since: int, tenant: str | None) -> Iterator[Event]:
    while True:
        page = client.events(since=since, limit=_PAGE, tenant=tenant)
        yield from page.items
        if page.next is None:
            return
        since = int(page.next)


def _say(events: Iterable[Event], *, as_json: bool) -> None:
    for event in events:
        if as_json:
            say(json_line(event), flush=True)
        else:
            detail = ", ".join(f"{name} {_word(value)}" for name, value in event.detail.items())
            say(f"{event.id}  {event.time:%Y-%m-%d %H:%M:%S}  {event.kind}  {event.subject}  {detail}", flush=True)


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

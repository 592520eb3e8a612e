"""`aclflow events` and `aclflow status`: what happened and happens, and how the whole service is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import json_line, remark, say
from orchestrator.client import Client
from orchestrator.wire.events import Event

_PAGE = 1000
_COLUMNS = ("event", "time", "kind", "about", "detail")


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
    *,
    shown: Shown,
    url: Url = None,
) -> None:
    """Show events, oldest first.

    They are changes, what is in force, hosts that refuse, rules about to expire. Administrators see everything, tenants
    what is about them. With --follow, --json prints one object a line.
    """
    wanted = frozenset(kind or ())
    with service(url) as client:
        past = deque(_read_past(client, since or 0, tenant), maxlen=None if since is not None else last)
        read = max(past[-1].id if past else 0, since or 0)
        chosen = [event for event in past if not wanted or event.kind in wanted]
        if not follow:
            if chosen or not shown.is_for_people:
                shown.say(chosen, _COLUMNS, map(_make_row, chosen))
            return
        _say_events(chosen, as_json=shown.is_document)
        coming = client.events.follow(after=read, tenant=tenant)
        _say_events((event for event in coming if not wanted or event.kind in wanted), as_json=shown.is_document)


def _read_past(client: Client, since: int, tenant: str | None) -> Iterator[Event]:
    while True:
        page = client.events.read(since=since, limit=_PAGE, tenant=tenant)
        yield from page.items
        if page.next is None:
            return
        since = int(page.next)


def _say_events(events: Iterable[Event], *, as_json: bool) -> None:
    for event in events:
        if as_json:
            say(json_line(event), flush=True)
        else:
            say("  ".join(map(str, _make_row(event))), flush=True)


def _make_row(event: Event) -> tuple[object, ...]:
    by = event.by()
    facts = [f"{name} {_spell_value(value)}" for name, value in event.facts().items()]
    detail = ", ".join([f"by {by}", *facts] if by else facts)
    return event.id, f"{event.time:%Y-%m-%d %H:%M:%S}", event.kind, event.subject, detail


def _spell_value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@taking
def status(shown: Shown, url: Url = None) -> None:
    """Show problems of the whole service, and the commands that help.

    They are hosts that are behind, silent, drifted or refused, quotas with 80 % used or one left, and certificates that
    end soon. Ends with 1 if there is anything. For operators.
    """
    with service(url) as client:
        found = client.read_status()
    if found.concerns or not shown.is_for_people:
        rows = ((one.kind, one.domain, one.text, one.command) for one in found.concerns)
        shown.say(found, ("what", "domain", "says", "try"), rows)
    else:
        say(f"all is in force: domains {found.domains}, hosts {found.hosts}, tenants {found.tenants}")
    if shown.is_for_people:
        last = found.last_backup
        remark(f"last backup: {last:%Y-%m-%d %H:%M} UTC" if last else "no backup is known (`aclflow db backup FILE`)")
    if found.concerns:
        raise typer.Exit(ANSWER_IS_NO)

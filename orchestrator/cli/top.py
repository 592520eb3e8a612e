"""`aclflow top`: the rules that decide most, live."""

from __future__ import annotations

import datetime as dt
import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.hits import OfTier, SortBy, TierName, hits_json
from orchestrator.cli.connection import service
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import printable
from orchestrator.client import Client
from orchestrator.errors import BadInput
from orchestrator.wire.codec import fill
from orchestrator.wire.hits import DomainRuleHits

END_OF_INPUT = "\x04"

Wait = Callable[[float], str]
"""Wait for a key, for so many seconds at most. "": none came, or the terminal has another size now."""


@contextmanager
def keys() -> Iterator[Wait]:
    """Read single keys of standard input during the block.

    There are none where the input is no terminal. To be used in the main thread.
    """
    if not sys.stdin.isatty():
        yield _wait_without_keys
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    resized, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handled = signal.signal(signal.SIGWINCH, lambda *_: None)
    # by the handler itself: Python's own runs after a wait that the signal came just before, not in it
    woken = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    try:
        tty.setcbreak(terminal)
        yield partial(_next, terminal, resized)
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGWINCH, handled)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        os.close(resized)
        os.close(tell)


def _next(terminal: int, resized: int, seconds: float) -> str:
    """Read past Python's buffer: what waits there would not wake anybody."""
    ready, _, _ = select.select([terminal, resized], [], [], seconds)
    if resized in ready:
        os.read(resized, 4096)
    if terminal not in ready:
        return ""
    return os.read(terminal, 1).decode("latin-1") or END_OF_INPUT


def _wait_without_keys(seconds: float) -> str:
    time.sleep(seconds)
    return ""


if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = ("tenant", "rule", "packets/s", "bits/s", "share", "packets", "last hit", "lifted")
_KEYS = {"r": SortBy.RATE, "p": SortBy.PACKETS, "b": SortBy.BYTES, "l": SortBy.LAST_HIT}
_COLUMN_FILTER = re.compile("[=~]")
_AROUND = 6
"""Lines of the picture that are no rule's."""
_QUIT = frozenset({"q", "\x03", "\x04"})
_UNITS = ("", "k", "M", "G", "T")
_THOUSAND = 1000.0


@dataclass(frozen=True, slots=True)
class View:
    """Options of a view: a domain's rules or one tenant's."""

    domain: Annotated[
        str | None, typer.Option("--domain", "-d", help="All rules of a domain.", autocompletion=complete.domains)
    ] = None
    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", help="One tenant's rules.", autocompletion=complete.tenants)
    ] = None
    tier: OfTier = TierName.HOST
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many rules at most.")] = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rules that the service is asked for: scope, order and a part of names."""

    view: View
    sort: SortBy = SortBy.RATE
    contains: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The first rules at a moment, the number of all, and their sums."""

    rules: Sequence[DomainRuleHits]
    total: int
    packets_per_s: float
    bits_per_s: float


@taking
def top(
    view: View,
    shown: Shown,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between looks.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    url: Url = None,
) -> None:
    """Show the rules that decide most, live, like top.

    On a terminal: r, p, b, l sort by rate, packets, bytes, last hit; q ends. Elsewhere a table is printed. With --json
    one look after the other is a line; --once looks once. Operators see whole domains, tenants their own rules.
    --sort takes rate, packets, bytes and last_hit as well: these choose which rules there are, the others order them.
    A --filter without a column is a part of the rule's name.
    """
    with service(url) as client:
        wanted, shown = _divide_request(_choose_scope(client, view), shown)
        if once or not shown.is_for_people or not sys.stdout.isatty():
            _print(client, wanted, shown, interval, once=once or not shown.is_document)
        else:
            _live(client, wanted, shown, interval)


def _divide_request(view: View, shown: Shown) -> tuple[Wanted, Shown]:
    """Divide a request into the service's part and what the command does itself.

    The command chooses among the rows that it is sent. Raises BadInput.
    """
    orders = {each.value: each for each in SortBy if each is not SortBy.LIST}
    named = [text for text in shown.filter or () if not _COLUMN_FILTER.search(text)]
    if len(named) > 1:
        raise BadInput("name one part of a rule's name, or columns", place="--filter")
    by_column = [text for text in shown.filter or () if text not in named]
    wanted = Wanted(view, orders.get(shown.sort or "", SortBy.RATE), "".join(named))
    return wanted, replace(shown, filter=by_column, sort=None if shown.sort in orders else shown.sort)


def _choose_scope(client: Client, view: View) -> View:
    """Return the view, with the caller's own tenant or domain by default.

    Raises BadInput where the caller sees several domains.
    """
    if view.domain is not None and view.tenant is not None:
        raise BadInput("name a domain or a tenant, not both", place="--tenant")
    if view.domain is not None or view.tenant is not None:
        return view
    seen = list(client.tenants.read_all())
    if len({each.domain for each in seen}) != 1:
        raise BadInput("name a domain or a tenant", place="--domain")
    only = seen[0]
    return replace(view, tenant=only.id) if len(seen) == 1 else replace(view, domain=only.domain)


def look(client: Client, wanted: Wanted) -> Seen:
    """Read the rules that are shown, with their hits, from the service."""
    view, sort = wanted.view, wanted.sort.value
    if view.domain is not None:
        found = client.hits.read_domain(
            view.domain, tier=view.tier.value, sort=sort, contains=wanted.contains, limit=view.limit
        )
        return Seen(found.items, found.rules, found.packets_per_s, found.bits_per_s)
    assert view.tenant is not None
    counted = client.hits.read(view.tenant, tier=view.tier.value, sort=sort).rules
    rules = [fill(DomainRuleHits, rule, tenant=view.tenant) for rule in counted]
    called = [rule for rule in rules if wanted.contains in rule.rule]
    rates = sum(rule.packets_per_s for rule in rules), sum(rule.bits_per_s for rule in rules)
    return Seen(called[: view.limit], len(rules), *rates)


def _print(client: Client, wanted: Wanted, shown: Shown, interval_s: float, *, once: bool) -> None:
    """Print one look after the other.

    Each is a table, a line of JSON or a document of YAML.
    """
    while True:
        seen = look(client, wanted)
        rows = [*_make_rows(seen, dt.datetime.now(dt.UTC))]
        if shown.is_document:
            chosen = shown.choose(_COLUMNS, rows)
            items = _write_items(seen) if not shown.column else chosen.objects()
            kept = items if shown.column else [items[number] for number in chosen.kept]
            shown.say_next(_write_document(seen, kept))
        else:
            shown.say((), _COLUMNS, rows)
        sys.stdout.flush()
        if once:
            return
        time.sleep(interval_s)


def _live(client: Client, wanted: Wanted, shown: Shown, interval_s: float) -> None:
    """A table that stays where it is, until q."""
    from rich.live import Live  # noqa: PLC0415 - only for people who look

    with keys() as pressed, Live(screen=True, auto_refresh=False) as screen:
        key = ""
        while key not in _QUIT:
            wanted = replace(wanted, sort=_KEYS.get(key, wanted.sort))
            limit = max(1, min(wanted.view.limit, screen.console.height - _AROUND))
            seen = look(client, replace(wanted, view=replace(wanted.view, limit=limit)))
            screen.update(_draw_table(seen, wanted, shown), refresh=True)
            key = pressed(interval_s)


def _draw_table(seen: Seen, wanted: Wanted, shown: Shown) -> RenderableType:
    from rich.table import Table  # noqa: PLC0415 - only for people who look
    from rich.text import Text  # noqa: PLC0415

    of = wanted.view.domain or wanted.view.tenant
    chosen = shown.choose(_COLUMNS, [*_make_rows(seen, dt.datetime.now(dt.UTC))])
    speed = f"{scale_number(seen.packets_per_s)} packets/s, {scale_number(seen.bits_per_s)} bits/s"
    table = Table(
        *chosen.columns,
        title=f"{of}: {seen.total} rules, {speed}",
        caption=f"by {wanted.sort.value}   r rate  p packets  b bytes  l last hit  q end",
        expand=True,
    )
    for row in chosen.cells:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    return table


def _make_rows(seen: Seen, now: dt.datetime) -> Iterator[tuple[str, ...]]:
    for rule in seen.rules:
        yield (
            rule.tenant,
            rule.rule,
            scale_number(rule.packets_per_s),
            scale_number(rule.bits_per_s),
            f"{rule.packets_per_s / seen.packets_per_s:.1%}" if seen.packets_per_s else "-",
            str(rule.packets),
            f"{max(0.0, (now - rule.last_hit).total_seconds()):.0f} s ago" if rule.last_hit else "never",
            "lifted" if rule.lifted else "",
        )


def _write_items(seen: Seen) -> list[dict[str, object]]:
    return [{"tenant": rule.tenant, **hits_json(rule)} for rule in seen.rules]


def _write_document(seen: Seen, items: Sequence[object]) -> dict[str, object]:
    return {
        "rules": seen.total,
        "packets_per_s": seen.packets_per_s,
        "bits_per_s": seen.bits_per_s,
        "items": items,
    }


def scale_number(number: float) -> str:
    """A number with three digits and a unit: 12.3k."""
    unit = 0
    while number >= _THOUSAND and unit < len(_UNITS) - 1:
        number, unit = number / _THOUSAND, unit + 1
    return f"{number:.3g}{_UNITS[unit]}"

"""Output of commands: results on standard output, all else on standard error.

Texts come from files and from services, so whatever is not printable is shown escaped: a rule's description must not
move the reader's cursor.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import typer


def printable(text: str) -> str:
    """The text with whatever would steer a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


def several(count: int, what: str) -> str:
    """A count and its noun, as in `2 packets`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def are(count: int) -> str:
    """The verb of a count."""
    return "is" if count == 1 else "are"


def say(text: str, *, colour: str | None = None, bold: bool = False, flush: bool = False) -> None:
    """Print a line of the result; coloured on a terminal only.

    `flush`: the reader is to have it at once.
    """
    typer.secho(printable(text), fg=colour, bold=bold or None)
    if flush:
        sys.stdout.flush()


def remark(text: str) -> None:
    """A line beside the result."""
    typer.secho(printable(text), err=True, dim=True)


def complain(text: str) -> None:
    """Why the command cannot go on."""
    for line in text.split("\n"):
        typer.echo(f"aclflow: {printable(line)}", err=True)


class AsTheyCome(list[object]):
    """A list for `say_json` whose items are made one by one, once.

    There may be too many to hold.
    """

    def __init__(self, items: Iterator[object]) -> None:
        super().__init__(itertools.islice(items, 1))  # whether there is any is asked first
        self._others = items

    def __iter__(self) -> Iterator[object]:
        yield from super().__iter__()
        yield from self._others


def _plain(value: object) -> object:
    """Return what JSON has for a value that it does not know."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON")


_JSON = json.JSONEncoder(indent=2, ensure_ascii=False, default=_plain)

_WIDE = 1 << 14
_AT_ONCE = 10_000
"""Words of JSON that are written at once: most results are."""


def json_line(value: object) -> str:
    """Return the result for programs on one line."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def say_json(value: object) -> None:
    """Print a result as JSON, for programs."""
    words = itertools.chain(_JSON.iterencode(value), ("\n",))
    while some := "".join(itertools.islice(words, _AT_ONCE)):
        typer.echo(some, nl=False)


def say_json_list(head: dict[str, object], name: str, items: Iterable[object]) -> None:
    """Print a JSON document that ends with a list, an item a line.

    The list may be too long to hold.
    """
    opened = json.dumps({**head, name: []}, indent=2, ensure_ascii=False).removesuffix("[]\n}")
    typer.echo(f"{opened}[", nl=False)
    for number, item in enumerate(items):
        typer.echo(f"{',' if number else ''}\n    {json_line(item)}", nl=False)
    typer.echo("\n  ]\n}")


def plain_value(value: object) -> object:
    """A document as JSON has it: lists, objects, texts, numbers."""
    return json.loads(_JSON.encode(value))


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, is_wide: bool = False) -> None:
    """A table: drawn on a terminal, tab-separated elsewhere so that other programs can cut it.

    `is_wide`: no cell is folded, however narrow the terminal is.
    """
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            typer.echo("\t".join(printable(str(cell)) for cell in row))
        return
    from rich.console import Console  # noqa: PLC0415 - only for people who look
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    Console(highlight=False, width=_WIDE if is_wide else None).print(table)


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show that something takes a while, for as long as it does."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only for people who look

    with Console(stderr=True).status(printable(what)):
        yield


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar; the block is given a function to tell how much is done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for people who look
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(what), total=total)
        yield lambda done: progress.update(task, completed=done)

"""Tables as people ask for them: forms, columns, order and filters, the same for every command that prints one.

aclflow tenant list -o csv --column tenant,prefixes --sort number --filter domain=pop1
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli.terminal import plain_value, printable, say_json, say_table
from orchestrator.errors import BadInput

Row = Sequence[object]
_FILTER = re.compile(r"([^=!~]+)(=|!=|~)(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class Form(Enum):
    """How a result is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Printed:
    """How a report of several tables is printed: in words and tables for people, or as the service's document."""

    form: Annotated[
        Form,
        typer.Option("--output", "-o", help="table, wide (nothing is folded), json, yaml or csv.", show_choices=False),
    ] = Form.TABLE
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, as -o json.")] = False

    def __post_init__(self) -> None:
        """Raise BadInput for a report as CSV, which has a place for one table only."""
        if self.form is Form.CSV and not isinstance(self, Shown):
            raise BadInput("it is a report, not one table: -o json or -o yaml prints it for programs", place="--output")

    @property
    def is_document(self) -> bool:
        """Whether a program is to read it."""
        return self.as_json or self.form in (Form.JSON, Form.YAML)

    @property
    def is_for_people(self) -> bool:
        """Whether words may stand beside the table."""
        return not self.as_json and self.form in (Form.TABLE, Form.WIDE)

    def say_document(self, document: object) -> None:
        """Print the service's document."""
        if self.form is not Form.YAML:
            say_json(document)
            return
        import yaml  # noqa: PLC0415 - few ask for it

        sys.stdout.write(yaml.safe_dump(plain_value(document), sort_keys=False, allow_unicode=True))

    def say_table(self, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Print one of the tables."""
        say_table(columns, rows, is_wide=self.form is Form.WIDE)


@dataclass(frozen=True, slots=True)
class Shown(Printed):
    """How one table is shown. `json` and `yaml` are the service's documents, or the chosen columns."""

    column: Annotated[
        list[str] | None,
        typer.Option("--column", "--columns", "-c", help="Only these, in this order; with commas, or repeat it."),
    ] = None
    sort: Annotated[str | None, typer.Option("--sort", help="By this column; -COLUMN: the largest first.")] = None
    filter: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Only rows with COLUMN=VALUE, COLUMN!=VALUE or COLUMN~PART; repeat it for more."),
    ] = None

    @property
    def is_choosing(self) -> bool:
        """Whether some rows or columns are asked for, or another order."""
        return bool(self.column or self.sort or self.filter)

    def say(self, document: object, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Print a result: `document` for programs, the table for people. Raises BadInput for a column there is not.

        Where the document is a list with an item for each row, filters and the order hold for it as well; where it is
        not, rows that are chosen are objects of their columns.
        """
        listed = [*rows]
        kept = self._order(columns, listed, [number for number, row in enumerate(listed) if self._keeps(columns, row)])
        chosen = [_index(columns, name, "--column") for text in self.column or () for name in text.split(",")]
        places = chosen or range(len(columns))
        names = [columns[place] for place in places]
        cells = [[listed[number][place] for place in places] for number in kept]
        if not self.is_document:
            self._say_rows(names, cells)
        elif chosen:
            self.say_document([dict(zip(names, row, strict=True)) for row in cells])
        elif isinstance(document, list | tuple) and len(document) == len(listed):
            self.say_document([document[number] for number in kept])
        elif self.is_choosing:
            self.say_document([dict(zip(names, row, strict=True)) for row in cells])
        else:
            self.say_document(document)

    def _say_rows(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if self.form is not Form.CSV:
            say_table(columns, rows, is_wide=self.form is Form.WIDE)
            return
        text = io.StringIO()
        cells = ([printable(str(cell)) for cell in row] for row in rows)
        csv.writer(text, lineterminator="\n").writerows([columns, *cells])
        sys.stdout.write(text.getvalue())

    def _keeps(self, columns: Sequence[str], row: Row) -> bool:
        return all(_test(columns, text)(row) for text in self.filter or ())

    def _order(self, columns: Sequence[str], rows: Sequence[Row], numbers: list[int]) -> list[int]:
        if self.sort is None:
            return numbers
        place = _index(columns, self.sort.removeprefix("-"), "--sort")
        return sorted(numbers, key=lambda number: _key(rows[number][place]), reverse=self.sort.startswith("-"))


def _index(columns: Sequence[str], name: str, option: str) -> int:
    """The place of a column, whose name may be written in any case and with - for a blank. Raises BadInput."""
    wanted = name.strip().lower().replace("-", " ")
    for place, column in enumerate(columns):
        if column.lower().replace("-", " ") == wanted:
            return place
    raise BadInput(f"'{name}' is no column: {', '.join(columns)}", place=option)


def _test(columns: Sequence[str], text: str) -> Callable[[Row], bool]:
    """A filter as a test of rows. Raises BadInput."""
    found = _FILTER.fullmatch(text)
    if found is None:
        raise BadInput(f"'{text}' is no filter: COLUMN=VALUE, COLUMN!=VALUE or COLUMN~PART", place="--filter")
    place, sign, value = _index(columns, found[1], "--filter"), found[2], found[3].lower()
    if sign == "~":
        return lambda row: value in str(row[place]).lower()
    return lambda row: (str(row[place]).lower() == value) is (sign == "=")


def _key(cell: object) -> tuple[int, float, str]:
    """The order of cells: numbers by their value, then texts."""
    text = str(cell)
    return (0, float(text), "") if _NUMBER.fullmatch(text) else (1, 0.0, text.lower())

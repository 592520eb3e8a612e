"""Tables in the requested form: columns, order and filters, the same for every command.

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

from orchestrator.cli.terminal import json_line, plain_value, printable, remark, say, say_json, say_table
from orchestrator.errors import BadInput

Row = Sequence[object]
_FILTER = re.compile(r"([^=!~]+)(=|!=|~)(.*)", re.DOTALL)
_NUMBER = re.compile(r"([+-]?[0-9][0-9,]*(?:\.[0-9]+)?)(?:([kMGT])| ?%| s(?: ago)?)?")
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Form(Enum):
    """How a result is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows and columns of a table that were requested.

    `kept` are the rows' numbers in the whole table.
    """

    kept: Sequence[int]
    columns: Sequence[str]
    cells: Sequence[Row]

    def objects(self) -> list[dict[str, object]]:
        """An object of the columns for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.cells]


@dataclass(frozen=True, slots=True)
class Shown:
    """How one table is shown.

    `json` and `yaml` are the service's documents, or the chosen columns.
    """

    form: Annotated[
        Form,
        typer.Option("--output", "-o", help="table, wide (nothing is folded), json, yaml or csv.", show_choices=False),
    ] = Form.TABLE
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, as -o json.")] = False
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

    def say_next(self, document: object) -> None:
        """Print one of several documents: a line of JSON, or a document of YAML."""
        if self.form is Form.YAML:
            sys.stdout.write("---\n")
            self.say_document(document)
        else:
            sys.stdout.write(f"{json_line(document)}\n")

    @property
    def is_choosing(self) -> bool:
        """Whether some rows or columns are asked for, or another order."""
        return bool(self.column or self.sort or self.filter)

    def say(self, document: object, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Print a result: `document` for programs, the table for people.

        Raises BadInput for a column that there is not. Where the document is a list with an item for each row, filters
        and the order hold for it as well; where it is not, rows that are chosen are objects of their columns.
        """
        listed = [*rows]
        chosen = self.choose(columns, listed)
        if not self.is_document:
            self._say_rows(chosen.columns, chosen.cells)
        elif self.column:
            self.say_document(chosen.objects())
        elif isinstance(document, list | tuple) and len(document) == len(listed):
            self.say_document([document[number] for number in chosen.kept])
        elif self.is_choosing:
            self.say_document(chosen.objects())
        else:
            self.say_document(document)

    def choose(self, columns: Sequence[str], rows: Sequence[Row]) -> Chosen:
        """Return the requested rows and columns, in the requested order.

        Raises BadInput for a column that there is not.
        """
        kept = self._order_rows(
            columns, rows, [number for number, row in enumerate(rows) if self._keeps_row(columns, row)]
        )
        named = [_index(columns, name, "--column") for text in self.column or () for name in text.split(",")]
        places = named or range(len(columns))
        cells = [[rows[number][place] for place in places] for number in kept]
        return Chosen(kept, [columns[place] for place in places], cells)

    def _say_rows(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if self.form is not Form.CSV:
            say_table(columns, rows, is_wide=self.form is Form.WIDE)
            return
        text = io.StringIO()
        cells = ([printable(str(cell)) for cell in row] for row in rows)
        csv.writer(text, lineterminator="\n").writerows([columns, *cells])
        sys.stdout.write(text.getvalue())

    def _keeps_row(self, columns: Sequence[str], row: Row) -> bool:
        return all(_test(columns, text)(row) for text in self.filter or ())

    def _order_rows(self, columns: Sequence[str], rows: Sequence[Row], numbers: list[int]) -> list[int]:
        if self.sort is None:
            return numbers
        place = _index(columns, self.sort.removeprefix("-"), "--sort")
        return sorted(numbers, key=lambda number: _key(rows[number][place]), reverse=self.sort.startswith("-"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a report.

    `beside`: it goes to standard error, as a remark about the table before it.
    """

    text: str = ""
    colour: str | None = None
    bold: bool = False
    beside: bool = False

    def say(self) -> None:
        """Print the line."""
        if self.beside:
            remark(self.text)
        else:
            say(self.text, colour=self.colour, bold=self.bold)


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a report, with its name.

    `is_extra`: it is printed only where it is named.
    """

    name: str
    columns: Sequence[str]
    rows: Iterable[Row]
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """How a report is printed.

    People get words and tables, programs the document, or one of its tables.
    """

    shown: Shown
    table: Annotated[
        str | None,
        typer.Option("--table", help="Only this table of the report; -o csv, -c, --sort and --filter are about it."),
    ] = None

    @property
    def is_document(self) -> bool:
        """Whether a program is to read the whole report."""
        return self.shown.is_document and not self._is_about_one

    @property
    def _is_about_one(self) -> bool:
        return self.table is not None or self.shown.is_choosing or self.shown.form is Form.CSV

    def check(self, tables: Sequence[str]) -> None:
        """Refuse a table that the report has not. Raises BadInput.

        Options about one table are refused where none is named.
        """
        if self.table is None and self._is_about_one and len(tables) > 1:
            raise BadInput(f"the report has several tables, name one: {', '.join(tables)}", place="--table")
        if self.table is not None and self.table not in tables:
            raise BadInput(f"'{self.table}' is no table of the report: {', '.join(tables)}", place="--table")

    def say(self, document: object, parts: Iterable[Line | Table]) -> None:
        """Print a report: its document, all its parts, or the named table.

        Raises BadInput.
        """
        if self.is_document:
            self.shown.say_document(document)
            return
        if not self._is_about_one:
            for part in parts:
                self._say_part(part)
            return
        tables = {part.name: part for part in parts if isinstance(part, Table)}
        self.check([*tables])
        chosen = tables[self.table] if self.table is not None else next(iter(tables.values()))
        rows = [*chosen.rows]
        self.shown.say([dict(zip(chosen.columns, row, strict=True)) for row in rows], chosen.columns, rows)

    def _say_part(self, part: Line | Table) -> None:
        if isinstance(part, Line):
            part.say()
        elif not part.is_extra:
            say_table(part.columns, part.rows, is_wide=self.shown.form is Form.WIDE)


def _index(columns: Sequence[str], name: str, option: str) -> int:
    """Return the place of a column. Raises BadInput.

    Its name may be written in any case and with - for a blank.
    """
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
    """Return the sort key of a cell: numbers by value, then texts.

    Numbers may be written as 1,234, 12.3k, 7.5 % or `3 s ago`.
    """
    text = str(cell)
    number = _NUMBER.fullmatch(text)
    if number is None:
        return (1, 0.0, text.lower())
    return (0, float(number[1].replace(",", "")) * _UNITS.get(number[2] or "", 1.0), "")

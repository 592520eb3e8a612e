"""Files with access lists, and `-` for standard input."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Reading
from orchestrator.cli.terminal import complain, remark
from orchestrator.errors import BadInput, Missing, NotExpressible, TooLarge
from orchestrator.policy.formats.registry import decode, guess, named, read_all
from orchestrator.policy.formats.registry import read as read_text
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Imported, Loss
from orchestrator.policy.model import Acl

STDIN = "-"

Files = Annotated[list[str], typer.Argument(metavar="FILE", help="Access lists; - is standard input.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="An access list; - is standard input.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="A file to write instead of standard output.")]


@dataclass(frozen=True, slots=True)
class Read:
    """A file that was read."""

    name: str
    format: str
    imported: Imported

    @property
    def acl(self) -> Acl:
        return self.imported.acl


def read_file(name: str, reading: Reading) -> Read:
    """Read a list, with what it loses. Raises Missing, BadInput, BadPolicy, TooLarge; places name the file."""
    shown, text, found = _opened(name, reading)
    return Read(shown, found, read_text(text, found, name=shown, options=reading.options()))


def read_files(names: list[str], reading: Reading) -> list[Read]:
    """Read several lists. Raises what `read_file` raises; standard input can be read once."""
    _standard_input_once(names)
    return [read_file(name, reading) for name in names]


def read_every_list(names: list[str], reading: Reading) -> list[Read]:
    """Read all lists of several files: a router's configuration may hold many. Raises what `read_file` raises."""
    _standard_input_once(names)
    found: list[Read] = []
    for name in names:
        shown, text, chosen = _opened(name, reading)
        if named(chosen).read_all is not None and not reading.access_list:
            lists = read_all(text, chosen, name=shown, options=reading.options())
            if len(lists) > 1:
                found += [Read(f"{shown}, list {each}", chosen, imported) for each, imported in lists.items()]
                continue
        found.append(Read(shown, chosen, read_text(text, chosen, name=shown, options=reading.options())))
    return found


def _standard_input_once(names: list[str]) -> None:
    if names.count(STDIN) > 1:
        raise BadInput("standard input can be read only once")


def _opened(name: str, reading: Reading) -> tuple[str, str, str]:
    """A file's name for people, its text and its format."""
    shown = "standard input" if name == STDIN else name
    text = decode(_bytes_of(name), name=shown, max_bytes=DEFAULT_OPTIONS.max_bytes)
    found = named(reading.format) if reading.format else guess(text, shown)
    return shown, text, found.name


def whole(read: Read, reading: Reading) -> Acl:
    """The list, if nothing of it was lost or the caller takes its approximation. Raises NotExpressible."""
    for note in read.imported.notes:
        remark(f"{read.name}: {note}")
    refuse_losses(read.imported.losses, reading.approximate, f"{read.name} cannot be carried over exactly")
    return read.acl


def refuse_losses(losses: tuple[Loss, ...], approximate: bool, what: str) -> None:
    """Tell every loss. Raises NotExpressible unless the caller takes the approximation."""
    for loss in losses:
        (remark if approximate else complain)(str(loss))
    if losses and not approximate:
        count = f"{len(losses)} place{'s' if len(losses) > 1 else ''}"
        raise NotExpressible(f"{what} ({count}); --approximate goes on, permitting less and denying more")


def write_output(text: str, output: str | None) -> None:
    """Write a result to a file or to standard output. Raises Missing for a place that cannot be written."""
    if output is None or output == STDIN:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Missing(f"it cannot be written: {error.strerror}", place=output) from None


def _bytes_of(name: str) -> bytes:
    """The content. A file that is too large is not read; of one without a size (a pipe) one byte more than is allowed.

    Raises TooLarge, Missing, BadInput.
    """
    most = DEFAULT_OPTIONS.max_bytes
    if name == STDIN:
        return sys.stdin.buffer.read(most + 1)
    try:
        with Path(name).open("rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise TooLarge(f"it is larger than {most} bytes", place=name)
            return file.read(most + 1)
    except IsADirectoryError:
        raise BadInput("it is a directory", place=name) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Missing(f"it cannot be read: {reason}", place=name) from None

"""Access lists by name: files, `-` for standard input, and tenants' lists at the service.

list.json, ./shop, -      a file: a name with a dot or a slash, or standard input
shop, shop@7              the list of tenant shop at the service: as it is, or as it was at version 7
shop.example@             a tenant whose name has a dot: @ always means the service
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import Judging, Reading
from orchestrator.cli.terminal import complain, remark, several
from orchestrator.errors import AclflowError, BadInput, Missing, NotExpressible, NotFound, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.registry import decode, format_named, guess, read_all, refuse_empty
from orchestrator.policy.formats.registry import read as read_text
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Imported, Loss, TakenFrom
from orchestrator.policy.model import Acl, ReturnTraffic
from orchestrator.wire.tenants import SeenTenant

STDIN = "-"

_LIVE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_:-]{0,63})|([A-Za-z0-9_][A-Za-z0-9_.:-]{0,63})@([0-9]{0,15})", re.ASCII)

_HELP = "A file (a name with a dot or a slash; - is standard input), or TENANT or TENANT@VERSION at the service."
Files = Annotated[list[str], typer.Argument(metavar="LIST...", help=_HELP, autocompletion=complete.lists)]
File = Annotated[str, typer.Argument(metavar="LIST", help=_HELP, autocompletion=complete.lists)]
Output = Annotated[str | None, typer.Option("--output", "-o", help="A file to write instead of standard output.")]


@dataclass(frozen=True, slots=True)
class LiveList:
    """A tenant's list at the service; without a version, as it is."""

    tenant: str
    version: int | None = None

    @classmethod
    def from_name(cls, name: str) -> LiveList | None:
        """The list that a name means; None for a file."""
        found = _LIVE.fullmatch(name)
        if found is None:
            return None
        return cls(found[1] or found[2], int(found[3]) if found[3] else None)


@dataclass(frozen=True, slots=True)
class Read:
    """A list that was read."""

    name: str
    format: str
    imported: Imported

    @property
    def acl(self) -> Acl:
        return self.imported.acl


def read_file(name: str, reading: Reading) -> Read:
    """Read a list, with what it loses.

    Raises Missing, BadInput, BadPolicy, TooLarge; places name the list. A list at the service raises what the client
    raises, too.
    """
    live = LiveList.from_name(name)
    if live is not None:
        return _fetch_list(name, live, reading.url)
    shown, text, found = _open_list(name, reading)
    return Read(shown, found, read_text(text, found, name=shown, options=reading.options()))


def read_files(names: list[str], reading: Reading) -> list[Read]:
    """Read several lists. Raises what `read_file` raises; standard input can be read once."""
    _check_standard_input(names)
    return [read_file(name, reading) for name in names]


def read_every_list(names: list[str], reading: Reading) -> list[Read]:
    """Read all lists of several files. Raises what `read_file` raises.

    A router's configuration may hold many.
    """
    _check_standard_input(names)
    found: list[Read] = []
    for name in names:
        if LiveList.from_name(name) is not None:
            found.append(read_file(name, reading))
            continue
        shown, text, chosen = _open_list(name, reading)
        if format_named(chosen).read_all is not None and not reading.access_list:
            lists = read_all(text, chosen, name=shown, options=reading.options())
            if len(lists) > 1:
                found += [Read(f"{shown}, list {each}", chosen, imported) for each, imported in lists.items()]
                continue
        found.append(Read(shown, chosen, read_text(text, chosen, name=shown, options=reading.options())))
    return found


def _fetch_list(name: str, live: LiveList, url: str | None) -> Read:
    """Read a list from the service. Raises what the client raises.

    The error has a hint where a file has the name.
    """
    try:
        with service(url) as client:
            seen = client.acls.read(live.tenant, version=live.version)
    except (Missing, NotFound) as error:
        raise with_hint(name, error) from None
    return Read(name, "native", Imported(seen.acl, taken_from=TakenFrom(live.tenant, seen.version)))


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of judging a list: own prefixes, and how replies get in."""

    own: tuple[Prefix, ...]
    returns: ReturnTraffic
    tenant: SeenTenant | None = None
    """The tenant whose list it is, at the service."""


def terms_of(names: Iterable[str], judging: Judging, reading: Reading) -> Terms:
    """Return the terms for lists: the caller's, else those of their tenant at the service.

    Raises BadInput, and what the client raises.
    """
    tenants = {live.tenant for name in names if (live := LiveList.from_name(name)) is not None}
    if len(tenants) != 1:
        return Terms(judging.prefixes(), judging.returns)
    with service(reading.url) as client:
        seen = client.tenants.read(tenants.pop())
    own = judging.prefixes() or tuple(map(Prefix.parse, seen.prefixes))
    return Terms(own, judging.return_traffic or ReturnTraffic(seen.return_traffic), seen)


def with_hint(name: str, error: AclflowError) -> AclflowError:
    """The same error, which says where a file has the name of a tenant."""
    if Path(name).is_file():
        error.reason += f" ('{name}' names a tenant; the file is ./{name})"
    return error


def _check_standard_input(names: list[str]) -> None:
    if names.count(STDIN) > 1:
        raise BadInput("standard input can be read only once")


def _open_list(name: str, reading: Reading) -> tuple[str, str, str]:
    """A file's name for people, its text and its format."""
    shown = "standard input" if name == STDIN else name
    text = decode(_bytes_of(name), name=shown, max_bytes=DEFAULT_OPTIONS.max_bytes)
    named = format_named(reading.format) if reading.format else None
    refuse_empty(text, shown)
    return shown, text, (named or guess(text, shown)).name


def whole(read: Read, reading: Reading) -> Acl:
    """Return a list that lost nothing, or its approximation if the caller accepts that.

    Raises NotExpressible.
    """
    for note in read.imported.notes:
        remark(f"{read.name}: {note}")
    refuse_losses(read.imported.losses, reading.approximate, f"{read.name} cannot be carried over exactly")
    return read.acl


def refuse_losses(losses: tuple[Loss, ...], approximate: bool, what: str) -> None:
    """Tell every loss. Raises NotExpressible unless the caller takes the approximation."""
    for loss in losses:
        (remark if approximate else complain)(str(loss))
    if losses and not approximate:
        raise NotExpressible(
            f"{what} ({several(len(losses), 'place')}); --approximate goes on, permitting less and denying more"
        )


def write_output(text: str, output: str | None) -> None:
    """Write a result to a file or to standard output.

    Raises Missing for a place that cannot be written.
    """
    if output is None or output == STDIN:
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Missing(f"it cannot be written: {error.strerror}", place=output) from None


def text_of(name: str) -> str:
    """A file's text. Raises Missing, BadInput, TooLarge."""
    return decode(_bytes_of(name), name=name, max_bytes=DEFAULT_OPTIONS.max_bytes)


def make_folder(name: str) -> None:
    """Make a folder for results, unless it is there.

    Raises Missing for a place that cannot be written.
    """
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Missing(f"the folder cannot be made: {error.strerror}", place=name) from None


def _bytes_of(name: str) -> bytes:
    """Return the content of a file, or of standard input.

    A file that is too large is not read; of one without a size (a pipe) one byte more than is allowed is read. Raises
    TooLarge, Missing, BadInput.
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

"""The program: arguments in, exit code out (`exitcodes.py`), and never a traceback."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer
import typer.main

from orchestrator.cli.exitcodes import ANSWER_IS_NO, DONE, EXIT_CODES, INTERRUPTED, NOT_THERE
from orchestrator.cli.lazy import application
from orchestrator.cli.shell import words_of_bash
from orchestrator.cli.terminal import complain
from orchestrator.cli.tree import TREE
from orchestrator.errors import AclflowError

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""The errors of writing where the file is to blame."""


def stand_in() -> None:
    """Open stand-ins for standard streams that are closed.

    There is nothing to read, the output refuses, and nobody hears complaints. Otherwise the next file that is opened
    would be taken for one of them, and what is said would be written there.
    """
    for name, number, flags in (
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, os.O_RDONLY),  # writing fails as it does where nothing is open
        ("stderr", 2, os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            _open(number, flags)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def cannot_be_written(error: OSError) -> bool:
    """Whether an error says that there is no more room, or nothing to write to."""
    return error.errno in _UNWRITABLE


def flush(stream: TextIO) -> None:
    """Write out the rest of a stream.

    Raises OSError where that cannot be; then nothing more is written, at exit neither.
    """
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise error if isinstance(error, OSError) else BrokenPipeError from None


def _open(number: int, flags: int) -> None:
    """Have a descriptor lead nowhere."""
    nowhere = os.open(os.devnull, flags)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


_EXTENSION = re.compile(r"orchestrator\.\w+\._\w+'|'_\w+' from 'orchestrator\.")
"""How Python names an extension module that is missing."""

TRACEBACK = "ACLFLOW_TRACEBACK"
"""Set in the environment, faults of the program itself are shown with their traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    `arguments` are those after the program's name, by default the process'.
    """
    stand_in()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = _run_command(arguments)
    try:
        flush(sys.stdout)
    except BrokenPipeError:  # whoever read our output is gone
        return code or ANSWER_IS_NO
    except OSError as error:
        complain(f"the output cannot be written: {error.strerror}")
        return NOT_THERE
    return code


def _run_command(arguments: Sequence[str] | None) -> int:
    try:
        with words_of_bash():
            _make_command()(args=arguments, prog_name=TREE.name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ANSWER_IS_NO if end.code else DONE
    except AclflowError as error:
        complain(_in_our_words(str(error)))
        return next(code for kind, code in EXIT_CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return ANSWER_IS_NO
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        complain(_reason(error))
        with contextlib.suppress(OSError):
            flush(sys.stdout)
        return NOT_THERE
    return DONE


def _in_our_words(text: str) -> str:
    """Name the option of a parameter that the service names."""
    return text.replace("`despite_expectations`", "`--despite-expectations`")


def _reason(error: Exception) -> str:
    """Why a command ends that did not expect to."""
    if isinstance(error, ImportError) and _EXTENSION.search(str(error)):
        return "the extension modules are not built: run `make` again in the checkout, or install aclflow again"
    if isinstance(error, OSError) and cannot_be_written(error):
        return f"{error.filename or 'the output'} cannot be written: {error.strerror}"
    return f"a fault of the program itself: {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)"


def _make_command() -> typer.core.TyperGroup:
    app = application(TREE)
    app.callback(help=TREE.summary)(_top)
    command = typer.main.get_command(app)
    if not isinstance(command, typer.core.TyperGroup):
        raise TypeError("the top of the tree is a group")
    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{TREE.name} {installed_version()}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Options before any command."""


def installed_version() -> str:
    """The version of the installed distribution."""
    try:
        return importlib.metadata.version(TREE.name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"

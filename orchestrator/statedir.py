"""A service's state directory, and the mark that one service alone uses a SQLite file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Conflict, Missing
from orchestrator.settings import Settings

_SQLITE_FILE = "sqlite:///"


def make_state_dir(settings: Settings) -> None:
    """Make the state directory.

    Raises Missing where it cannot be made, and where root would keep a SQLite file in another user's: the service could
    not write it, and has a store of its own by the settings of its unit.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        owner = settings.state_dir.stat().st_uid
    except OSError as error:
        raise Missing(f"the state directory cannot be made: {error.strerror}", place=str(settings.state_dir)) from None
    if os.geteuid() == 0 and owner != 0 and settings.database_url.startswith(_SQLITE_FILE):
        raise Missing(
            "it belongs to the service's user, and this is root: run it as that user, with the settings of the "
            "service's unit",
            place=str(settings.state_dir),
        )


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep a second service away from a SQLite file during the block.

    Each would serve programs that the other has replaced.

    Raises Conflict while a service has it.
    """
    if not settings.database_url.startswith(_SQLITE_FILE):
        yield
        return
    make_state_dir(settings)
    database, _, _ = settings.database_url.removeprefix(_SQLITE_FILE).partition("?")
    try:
        mark = os.open(f"{database}.serving", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Missing(f"the database cannot be kept there: {error.strerror}", place=database) from None
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another service has this database, one at a time: stop it first", place=database) from None
        yield
    finally:
        os.close(mark)

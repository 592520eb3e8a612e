"""`aclflow db backup` and `aclflow db restore`: all that a service knows, in one file and back."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.backups import back_up_service, restore_service
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import counting, remark, say, say_json
from orchestrator.settings import load
from orchestrator.store.backups.backup import Contents
from orchestrator.store.schema.core import HEAD


@taking
def backup(
    file: Annotated[Path, typer.Argument(help="The backup; one of that name is replaced when the new one is whole.")],
    without_authority: Annotated[
        bool, typer.Option("--without-authority", help="Leave the key of the certificate authority out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write all that the service knows to a file, in one snapshot; the service may be running.

    Run it as the user that the service runs as, with its settings. Keep the file where only you come: it has the
    digests of tokens and, unless left out, the key of the certificate authority: whoever has that is everybody.
    """
    done = back_up_service(
        load(),
        file,
        authority=not without_authority,
        now=dt.datetime.now(dt.UTC),
        progress=partial(counting, "backing up, rows"),
    )
    if as_json:
        say_json({"file": str(file), **_contents_json(done)})
        return
    say(f"{file}: {done.rows} rows of {len(done.tables)} tables, schema {done.schema}")
    remark(
        "with the key of the certificate authority: keep it like that key"
        if done.authority
        else "without a certificate authority: keep a copy of its folder, if there is one"
    )


@taking
def restore(
    file: Annotated[Path, typer.Argument(help="What `aclflow db backup` wrote.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Lose what the database, and the authority's folder, hold now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup back: all of it or nothing, also into the other kind of database. Stop the service before.

    Machines that hold something later than the backup are brought back to it when the service runs. Enrolment tokens
    that were open are used up, for they may have been; tokens and certificates that were revoked since are valid again.
    """
    done = restore_service(
        load(), file, replace=yes, now=dt.datetime.now(dt.UTC), progress=partial(counting, "putting back, rows")
    )
    if as_json:
        say_json(
            {"file": str(file), **_contents_json(done.contents), "schema": HEAD, "enrolment_tokens_used_up": done.spent}
        )
        return
    say(f"the state of {done.contents.made.isoformat()} is back: {done.contents.rows} rows, schema {HEAD}")
    if done.spent:
        remark(f"{done.spent} enrolment tokens are used up: make new ones for machines that have not enrolled")
    remark("revoke again what was revoked since then: `aclflow certificates list`, `aclflow token list`")


def _contents_json(contents: Contents) -> dict[str, object]:
    return {
        "made": contents.made.isoformat(),
        "program": contents.program,
        "schema": contents.schema,
        "rows": contents.rows,
        "authority": contents.authority is not None,
    }

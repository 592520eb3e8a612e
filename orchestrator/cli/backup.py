"""`aclflow db backup` and `restore`: save all that a service knows in one file."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.backups import back_up_service, restore_service
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import counting, remark, say, say_json
from orchestrator.errors import Conflict
from orchestrator.identity.agefile import new_identity
from orchestrator.identity.files import write_file
from orchestrator.settings import load
from orchestrator.store.backups.backup import Contents
from orchestrator.store.schema.core import HEAD


@taking
def backup(
    file: Annotated[Path, typer.Argument(help="The backup; one of that name is replaced when the new one is whole.")],
    with_authority: Annotated[
        bool, typer.Option("--with-authority", help="Put the key of the certificate authority into it, too.")
    ] = False,
    recipient: Annotated[
        list[str] | None,
        typer.Option("--recipient", help="Encrypt it for age1..., of `aclflow db backup-key`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Back up all that the service knows to a file, in one snapshot.

    The service may be running. Run this as the user that the service runs as, with its settings. The backup is signed
    by the certificate authority, where there is one, and encrypted for recipients (here and in the setting
    backup_recipients). The key of the authority is left out: keep a copy of its folder apart, for anybody who has it
    can pass for any machine.
    """
    done = back_up_service(
        load(),
        file,
        authority=with_authority,
        recipients=recipient or (),
        now=dt.datetime.now(dt.UTC),
        progress=partial(counting, "backing up, rows"),
    )
    contents = done.contents
    if as_json:
        kept = {"signed": done.is_signed, "recipients": done.recipients}
        say_json({"file": str(file), **_contents_json(contents), **kept})
        return
    say(f"{file}: {contents.rows} rows of {len(contents.tables)} tables, schema {contents.schema}")
    remark(
        "with the key of the certificate authority: keep it like that key"
        if contents.authority
        else "without the key of the certificate authority: keep a copy of its folder apart, if there is one"
    )
    if not done.is_noted:
        remark("the database could not note that it was backed up: `aclflow status` does not tell of it")
    if not done.is_signed:
        remark("not signed: there is no authority, so a restore cannot tell who made it (aclflow certificates init)")
    if not done.recipients:
        remark("not encrypted: whoever can read it has the digests of tokens, and every list (--recipient)")


@taking
def backup_key(
    file: Annotated[Path, typer.Argument(help="Where the key is kept; it must not be there yet.")],
) -> None:
    """Make a key that opens backups, and print the recipient to encrypt for.

    Both are in age's format. Keep the file away from the service's machine: the service needs the recipient alone.
    """
    secret, recipient = new_identity()
    if file.exists():
        raise Conflict("there is a file of that name already", place=str(file))
    write_file(file, f"# recipient: {recipient}\n{secret}\n".encode(), 0o600)
    say(recipient)


@taking
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `aclflow db backup` wrote.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Lose what the database, and the authority's folder, hold now.")
    ] = False,
    identity: Annotated[
        Path | None, typer.Option("--identity", help="The file with the key that opens an encrypted backup.")
    ] = None,
    signed_by: Annotated[
        Path | None,
        typer.Option("--signed-by", help="The certificate (PEM) of the authority that signed it."),
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Take it although no authority that is known here has signed it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup: all of it or nothing. Stop the service before.

    It may go into the other kind of database. Machines that hold something later than the backup are brought back to it
    when the service runs. Where an authority is known (in its folder, or in the setting authority), it must have signed
    the backup. Enrolment tokens that were open are used up, for they may have been; tokens and certificates
    that were revoked since are valid again.
    """
    put_back = restore_service(
        load(),
        file,
        replace=yes,
        identity=identity,
        signed_by=signed_by,
        unsigned=unsigned,
        now=dt.datetime.now(dt.UTC),
        progress=partial(counting, "putting back, rows"),
    )
    done = put_back.restored
    if as_json:
        more = {"schema": HEAD, "enrolment_tokens_used_up": done.spent, "unverified": list(put_back.unverified)}
        say_json({"file": str(file), **_contents_json(done.contents), **more})
        return
    say(f"the state of {done.contents.made.isoformat()} is back: {done.contents.rows} rows, schema {HEAD}")
    for sentence in put_back.unverified:
        remark(f"not verified: {sentence}")
    remark("not verified: whether there is a later backup; this one's date is all that tells")
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

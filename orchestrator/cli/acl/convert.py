"""`aclflow acl import` and `export`: lists from one format to another, with an account of what is lost."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.files import (
    File,
    Files,
    Output,
    Read,
    read_every_list,
    read_file,
    read_files,
    refuse_losses,
    whole,
    write_output,
)
from orchestrator.cli.options import AsJson, Reading, Report, taking
from orchestrator.cli.terminal import remark, say, say_json
from orchestrator.errors import BadInput
from orchestrator.policy.formats.registry import FORMATS, write
from orchestrator.policy.formats.results import Loss
from orchestrator.policy.model import Direction

NATIVE = "native"
_ANSWER_IS_NO = 1
WRITABLE = tuple(found.name for found in FORMATS.values() if found.write is not None)


@taking
def import_lists(
    names: Files, reading: Reading, output: Output = None, report: Report = False, as_json: AsJson = False
) -> None:
    """Read lists of other formats and write them as native JSON.

    Nothing is dropped or widened in silence: what cannot be carried over is listed, and then the list is not written
    (exit code 1), unless you ask for its approximation. With --report only the account is printed.
    """
    read = read_every_list(names, reading) if report else read_files(names, reading)
    if report:
        _report(read, as_json=as_json)
        if any(not one.imported.exact for one in read):
            raise typer.Exit(_ANSWER_IS_NO)
        return
    if len(read) > 1:
        raise BadInput("several lists do not fit into one: import them one by one, or ask for a --report")
    write_output(write(whole(read[0], reading), NATIVE, read[0].imported.taken_from).text, output)


@taking
def export_list(
    name: File,
    to: Annotated[str, typer.Option("--format", "-f", help=f"To write: {', '.join(WRITABLE)}.")],
    source: Annotated[str | None, typer.Option("--from", help="Format of FILE; told by sight otherwise.")] = None,
    approximate: Annotated[bool, typer.Option("--approximate", help="Go on where something is lost.")] = False,
    output: Output = None,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Write a list in another format, with the version that it was taken from where the file states one.

    What the format cannot say is listed, and then nothing is written (exit code 1), unless you ask for the
    approximation, which permits less and denies more. With --report only the account is printed.
    """
    reading = Reading(format=source, approximate=approximate)
    read = read_file(name, reading)
    acl = whole(read, reading)
    exported = write(acl, to, read.imported.taken_from)
    if report or as_json:
        account = {"file": read.name, "format": to, "notes": list(exported.notes), "losses": _losses(exported.losses)}
        if as_json:
            say_json(account if report else {**account, "text": exported.text})
        else:
            _say_account(f"{read.name} as {to}", exported.notes, exported.losses)
        if exported.losses and not approximate:
            raise typer.Exit(_ANSWER_IS_NO)
        return
    for note in exported.notes:
        remark(note)
    refuse_losses(exported.losses, approximate, f"{to} cannot say all of it")
    write_output(exported.text, output)


def account_of(read: Read) -> dict[str, object]:
    """What was read from a file, for programs."""
    acl = read.acl
    return {
        "file": read.name,
        "format": read.format,
        "rules": len(acl.rules),
        "ingress_rules": sum(rule.direction is Direction.INGRESS for rule in acl.rules),
        "egress_rules": sum(rule.direction is Direction.EGRESS for rule in acl.rules),
        "groups": len(acl.groups),
        "ingress_default": acl.ingress_default.value,
        "egress_default": acl.egress_default.value,
        "notes": list(read.imported.notes),
        "losses": _losses(read.imported.losses),
    }


def say_account_of(read: Read) -> None:
    """What was read from a file, for people."""
    account = account_of(read)
    say(
        f"{read.name}: {read.format}, {account['rules']} rules ({account['ingress_rules']} ingress, "
        f"{account['egress_rules']} egress), {account['groups']} groups; "
        f"by default ingress {account['ingress_default']}, egress {account['egress_default']}",
        bold=True,
    )
    _say_account(read.name, read.imported.notes, read.imported.losses)


def _report(read: list[Read], *, as_json: bool) -> None:
    if as_json:
        say_json({"files": [account_of(one) for one in read]})
        return
    for one in read:
        say_account_of(one)


def _say_account(title: str, notes: tuple[str, ...], losses: tuple[Loss, ...]) -> None:
    for note in notes:
        say(f"  note: {note}")
    for loss in losses:
        say(f"  {loss}", colour="yellow")
    if not losses:
        say(f"  {title}: nothing is lost", colour="green")


def _losses(losses: tuple[Loss, ...]) -> list[dict[str, object]]:
    return [
        {"file": loss.file, "line": loss.line, "text": loss.text, "reason": loss.reason, "effect": loss.effect.value}
        for loss in losses
    ]

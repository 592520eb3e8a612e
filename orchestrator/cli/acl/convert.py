"""`aclflow acl import` and `export`: convert lists between formats, and report losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import (
    STDIN,
    File,
    Files,
    LiveList,
    Output,
    Read,
    make_folder,
    read_every_list,
    read_file,
    read_files,
    refuse_losses,
    whole,
    write_output,
)
from orchestrator.cli.options import AsJson, Reading, Report, Url, addresses_of, taking
from orchestrator.cli.terminal import remark, say, say_json, several
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.endpoints import write_at_endpoints
from orchestrator.policy.formats.one_sided import FAR_SIDE_ONLY
from orchestrator.policy.formats.registry import FORMATS, write
from orchestrator.policy.formats.results import Exported, Loss, account
from orchestrator.policy.model import Acl, Direction

NATIVE = "native"
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
        _report_files(read, as_json=as_json)
        if any(not one.imported.exact for one in read):
            raise typer.Exit(ANSWER_IS_NO)
        return
    if len(read) > 1:
        raise BadInput("several lists do not fit into one: import them one by one, or ask for a --report")
    write_output(write(whole(read[0], reading), NATIVE, read[0].imported.taken_from).text, output)


@taking
def export_list(
    name: File,
    to: Annotated[str, typer.Option("--format", "-f", help=f"The format to write: {', '.join(WRITABLE)}.")],
    source: Annotated[
        str | None, typer.Option("--from", help="The format of FILE; by default it is recognised.")
    ] = None,
    approximate: Annotated[bool, typer.Option("--approximate", help="Go on where something is lost.")] = False,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            help="As it is at this endpoint, NAME=PREFIX,PREFIX; at the service, NAME or `all`.",
            autocompletion=complete.places,
        ),
    ] = None,
    output: Output = None,
    report: Report = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Write a list in another format.

    It states the version that it was taken from, where the file does. Rules that the format cannot say are listed, and
    then nothing is written (exit code 1), unless you ask for the approximation, which permits less and denies more;
    then FILE.losses beside the output lists what could not be said. With --report only the account is printed.

    Security groups name the far side only. With --endpoint the list is written as it is at one machine, where the near
    side is the machine itself: one file for each, NAME.FORMAT in the folder --output.
    """
    reading = Reading(format=source, approximate=approximate, url=url)
    read = read_file(name, reading)
    acl = whole(read, reading)
    if endpoint:
        _export_endpoints(read, acl, to, _endpoints_of(name, endpoint, url), output, approximate=approximate)
        return
    exported = write(acl, to, read.imported.taken_from)
    notes = tuple(map(str, exported.notes))
    if report or as_json:
        told = {"file": read.name, "format": to, "notes": list(notes), "losses": _write_losses(exported.losses)}
        if as_json:
            say_json(told if report else {**told, "text": exported.text})
        else:
            _say_account(f"{read.name} as {to}", notes, exported.losses)
        if exported.losses and not approximate:
            raise typer.Exit(ANSWER_IS_NO)
        return
    for note in notes:
        remark(note)
    if any(loss.reason == FAR_SIDE_ONLY for loss in exported.losses):
        remark("with --endpoint NAME, or all, the list is written for one machine, whose own side needs no name")
    refuse_losses(exported.losses, approximate, f"{to} cannot say all of it")
    _write_with_losses(f"{read.name} as {to}", exported, output)


def _write_with_losses(title: str, exported: Exported, output: str | None) -> None:
    """Write a text and, beside its file, what it could not say."""
    write_output(exported.text, output)
    if exported.losses and output not in (None, STDIN):
        write_output(account(title, exported), f"{output}.losses")
        remark(f"what could not be said is in {output}.losses")


def _endpoints_of(name: str, asked: list[str], url: str | None) -> Mapping[str, tuple[Prefix, ...]]:
    """Return the named endpoints with their prefixes. Raises BadInput.

    The prefixes are given with the names, or the service knows them.
    """
    if all("=" in each for each in asked):
        return addresses_of(asked, "--endpoint")
    live = LiveList.from_name(name)
    if live is None:
        raise BadInput("of a list in a file say which addresses it has: NAME=PREFIX,PREFIX", place="--endpoint")
    with service(url) as client:
        known = {
            each.name: tuple(map(Prefix.parse, each.prefixes))
            for each in client.tenants.read_own_endpoints(live.tenant)
        }
    wanted = [*known] if "all" in asked else asked
    missing = next((each for each in wanted if each not in known), None)
    if missing is not None or not wanted:
        raise BadInput(f"{live.tenant} has no endpoint '{missing}': {', '.join(known) or 'none'}", place="--endpoint")
    return {each: known[each] for each in wanted}


def _export_endpoints(
    read: Read,
    acl: Acl,
    to: str,
    endpoints: Mapping[str, tuple[Prefix, ...]],
    output: str | None,
    *,
    approximate: bool,
) -> None:
    """Write the list of each endpoint to a file of its own.

    Nothing is written where one of them loses something.
    """
    if output is None and len(endpoints) > 1:
        raise BadInput("several endpoints make several files: name a folder for them", place="--output")
    found = write_at_endpoints(acl, to, endpoints, read.imported.taken_from)
    refuse_losses(
        tuple(loss for exported in found.values() for loss in exported.losses),
        approximate,
        f"{to} cannot say all of it",
    )
    if output is not None:
        make_folder(output)
    for name, exported in found.items():
        file = None if output is None else f"{output}/{name}.{to}"
        _write_with_losses(f"{read.name} at {name} as {to}", exported, file)
    if output is not None:
        remark(f"{several(len(found), 'file')} in {output}")


def account_of(read: Read) -> dict[str, object]:
    """Describe a list that was read, for programs."""
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
        "losses": _write_losses(read.imported.losses),
    }


def say_account_of(read: Read) -> None:
    """Describe a list that was read, for people."""
    account = account_of(read)
    say(
        f"{read.name}: {read.format}, {account['rules']} rules ({account['ingress_rules']} ingress, "
        f"{account['egress_rules']} egress), {account['groups']} groups; "
        f"by default ingress {account['ingress_default']}, egress {account['egress_default']}",
        bold=True,
    )
    _say_account(read.name, read.imported.notes, read.imported.losses)


def _report_files(read: list[Read], *, as_json: bool) -> None:
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


def _write_losses(losses: tuple[Loss, ...]) -> list[dict[str, object]]:
    return [
        {"file": loss.file, "line": loss.line, "text": loss.text, "reason": loss.reason, "effect": loss.effect.value}
        for loss in losses
    ]

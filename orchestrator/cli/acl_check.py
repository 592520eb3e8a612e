"""`aclflow acl check`: what is wrong with lists in files."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.acl_convert import account_of, say_account_of
from orchestrator.cli.files import Files, Read, read_every_list
from orchestrator.cli.options import AsJson, Judging, Reading, Report, taking, time_of
from orchestrator.cli.terminal import at_work, complain, say, say_json
from orchestrator.policy.describe import finding_json, packet_text
from orchestrator.policy.findings import Checks, Finding, Kind, Wide
from orchestrator.policy.findings import check as findings_of

_ANSWER_IS_NO = 1
_COLOURS = {
    Kind.NEVER: "red",
    Kind.SHADOWED: "red",
    Kind.CONFLICT: "yellow",
    Kind.DUPLICATE: "yellow",
    Kind.REDUNDANT: "cyan",
    Kind.WIDE: "magenta",
    Kind.EXPIRED: "blue",
}


@dataclass(frozen=True, slots=True)
class Looking:
    """What is looked for."""

    only: Annotated[list[Kind] | None, typer.Option("--only", help="A kind of finding; all kinds by default.")] = None
    now: Annotated[str | None, typer.Option("--now", help="The time that expiry is judged at; now by default.")] = None
    wide_prefix: Annotated[
        int, typer.Option("--wide-prefix", min=0, max=32, help="A permit is wide from so large a prefix on, ...")
    ] = Wide().prefix_length
    wide_ports: Annotated[
        int, typer.Option("--wide-ports", min=1, max=65536, help="... to at least so many ports.")
    ] = Wide().ports

    def checks(self, judging: Judging) -> Checks:
        """As the findings want them. Raises BadInput."""
        return Checks(
            own=judging.prefixes(),
            returns=judging.return_traffic,
            now=time_of(self.now, "--now") if self.now else dt.datetime.now(dt.UTC),
            wide=Wide(self.wide_prefix, self.wide_ports),
        )


@taking
def check(
    names: Files,
    reading: Reading,
    judging: Judging,
    looking: Looking,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Find rules that are shadowed, redundant, in conflict, too wide.

    Findings are exact: each comes with a packet that shows it. Ends with 1 if there is any, or if a file says what
    cannot be carried over (then the list is not judged, unless you ask for its approximation).
    """
    checks = looking.checks(judging)
    read = read_every_list(names, reading)
    judged = [(one, _judge(one, checks, looking, reading)) for one in read]
    if as_json:
        _say_json(judged)
    else:
        for one, findings in judged:
            _say(one, findings, report=report)
    if any(findings or not (one.imported.exact or reading.approximate) for one, findings in judged):
        raise typer.Exit(_ANSWER_IS_NO)


def _judge(read: Read, checks: Checks, looking: Looking, reading: Reading) -> tuple[Finding, ...]:
    if not (read.imported.exact or reading.approximate):
        return ()
    with at_work(f"checking {read.name}: {len(read.acl.rules)} rules"):
        found = findings_of(read.acl, checks)
    return tuple(finding for finding in found if not looking.only or finding.kind in looking.only)


def _say_json(judged: list[tuple[Read, tuple[Finding, ...]]]) -> None:
    findings = [{"file": one.name, **finding_json(finding)} for one, found in judged for finding in found]
    say_json({"files": [account_of(one) for one, _ in judged], "findings": findings})


def _say(read: Read, findings: tuple[Finding, ...], *, report: bool) -> None:
    if report:
        say_account_of(read)
    else:
        for loss in read.imported.losses:
            complain(str(loss))
    for finding in findings:
        example = f"  (e.g. {packet_text(finding.witness)})" if finding.witness else ""
        text = f"{read.name}: {finding.kind.value}: {finding.explanation}{example}"
        say(text, colour=_COLOURS[finding.kind])
    if report:
        counts = [(kind.value, sum(finding.kind is kind for finding in findings)) for kind in Kind]
        found = ", ".join(f"{count} {kind}" for kind, count in counts if count) or "no findings"
        say(f"{read.name}: {found}", bold=True)

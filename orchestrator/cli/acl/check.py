"""`aclflow acl check`: what is wrong with lists in files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.acl.convert import account_of, say_account_of
from orchestrator.cli.files import Files, Read, read_every_list
from orchestrator.cli.options import AsJson, Judging, Reading, Report, taking, time_of
from orchestrator.cli.terminal import complain, counting, remark, say, say_json_list, say_table
from orchestrator.policy.describe import finding_json, packet_text
from orchestrator.policy.findings import Checks, Finding, Findings, Kind
from orchestrator.policy.findings import check as findings_of
from orchestrator.policy.model import Acl
from orchestrator.policy.suspects import Wide

_ANSWER_IS_NO = 1


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
    most: Annotated[
        int, typer.Option("--most", min=0, help="Findings to print of each list, 0 for all; --json prints all.")
    ] = 200

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
    judged = [_judge(one, checks, looking, reading) for one in read_every_list(names, reading)]
    if as_json:
        _say_json(judged)
    else:
        for each in judged:
            _say(each, looking.most or len(each.findings), alone=len(judged) == 1, report=report)
    if any(each.findings or not each.judged for each in judged):
        raise typer.Exit(_ANSWER_IS_NO)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in a list; nothing if it could not be judged for what it loses."""

    read: Read
    findings: Findings
    judged: bool


def _judge(read: Read, checks: Checks, looking: Looking, reading: Reading) -> Outcome:
    if not (read.imported.exact or reading.approximate):
        return Outcome(read, findings_of(Acl()), judged=False)
    with counting(f"checking {read.name}", total=100) as told:
        found = findings_of(read.acl, checks, lambda done, total: told(100 * done // total))
    return Outcome(read, found.of(looking.only) if looking.only else found, judged=True)


def _say_json(judged: Sequence[Outcome]) -> None:
    findings = ({"file": each.read.name, **finding_json(finding)} for each in judged for finding in each.findings)
    say_json_list({"files": [account_of(each.read) for each in judged]}, "findings", findings)


def _say(outcome: Outcome, most: int, *, alone: bool, report: bool) -> None:
    read, findings = outcome.read, outcome.findings
    if report:
        say_account_of(read)
    else:
        for loss in read.imported.losses:
            complain(str(loss))
    if findings:
        if not alone:
            say(read.name, bold=True)
        say_table(("rule", "kind", "because", "example"), map(_row, findings[:most]))
    counts = ", ".join(f"{count} {kind.value}" for kind, count in findings.counts.items()) or "no findings"
    if report:
        say(f"{read.name}: {counts}", bold=True)
    elif outcome.judged and not findings:
        remark(f"{read.name}: {counts}")
    if len(findings) > most:
        remark(f"{read.name}: {counts}; the first {most} are shown, --most 0 shows all")


def _row(finding: Finding) -> tuple[str, str, str, str]:
    """A finding in a table: the rule it is said of (of a conflict both), or the group."""
    about = finding.rules if finding.kind is Kind.CONFLICT else finding.rules[:1]
    subject = f"@{finding.group}" if finding.group else ", ".join(about)
    example = packet_text(finding.witness) if finding.witness else ""
    return subject, finding.kind.value, finding.explanation, example

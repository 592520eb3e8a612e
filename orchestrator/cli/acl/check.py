"""`aclflow acl check`: findings about lists, compared with known and waived ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Annotated

import orjson
import typer

from orchestrator.cli.acl.convert import account_of, say_account_of
from orchestrator.cli.acl.traffic import Recorded, say_traffic
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import Files, Read, Terms, read_every_list, terms_of, text_of, write_output
from orchestrator.cli.options import Judging, Reading, Report, taking, time_of
from orchestrator.cli.tables import Form, Shown
from orchestrator.cli.terminal import complain, counting, plain_value, remark, say, say_json_list, several
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.describe import finding_json, packet_text
from orchestrator.policy.findings import Checks, Finding, Findings, Kind, Severity, Subject, soon_over
from orchestrator.policy.findings import check as findings_of
from orchestrator.policy.formats.json_text import load_json, quote_value
from orchestrator.policy.formats.native_values import a_list, an_object, at, read_text
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.suspects import Wide
from orchestrator.wire.lists import DraftTraffic
from orchestrator.wire.tenants import SeenTenant

VERSION = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known, so that a pipeline fails for new ones only.

    They are a file that is kept in a repository, together with the lists:

        {"version": 1, "lists": {"list.json": [{"kind": "redundant", "rules": ["web"]},
                                               {"kind": "group", "group": "office"}]}}

    A finding is known by its kind and the rules (two of a conflict, else one) or the group that it is said of. Where
    one list is judged and the file knows one, they belong together whatever the list's file is called.
    """

    lists: Mapping[str, Sequence[Subject]]

    def of(self, name: str, *, alone: bool) -> Sequence[Subject]:
        """Return the findings of a list; of the only one if one is judged."""
        if alone and len(self.lists) == 1:
            return next(iter(self.lists.values()))
        return self.lists.get(name, ())

    @classmethod
    def read(cls, name: str) -> Baseline:
        """Read a file. Raises Missing, and BadInput with the place."""
        text = text_of(name)
        try:
            document = an_object(load_json(text), "a baseline")
            if document.keys() != {"version", "lists"} or document["version"] != VERSION:
                raise BadInput('a baseline is {"version": 1, "lists": {...}}: write it with --write-baseline')
            lists = at("lists", an_object, document["lists"], "lists by name")
            return cls({each: at(f"lists.{each}", _read_subjects, known) for each, known in lists.items()})
        except AclflowError as error:
            if error.place is not None and error.place.startswith("line "):
                raise BadInput(error.reason, place=f"{name}, {error.place}") from None
            raise error.within(name) from None

    def write(self, name: str) -> None:
        """Write it to a file. Raises Missing."""
        lists = {each: [_write_subject(subject) for subject in known] for each, known in self.lists.items()}
        text = orjson.dumps({"version": VERSION, "lists": lists}, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        write_output(text.decode() + "\n", name)


def _write_subject(subject: Subject) -> dict[str, object]:
    about = {"group": subject.group} if subject.group is not None else {"rules": list(subject.rules)}
    return {"kind": subject.kind.value, **about}


def _read_subjects(value: object) -> tuple[Subject, ...]:
    return tuple(at(f"[{index}]", _read_subject, each) for index, each in enumerate(a_list(value)))


def _read_subject(value: object) -> Subject:
    fields = an_object(value, "a finding")
    kind = fields.get("kind")
    if kind not in {each.value for each in Kind} or not fields.keys() <= {"kind", "rules", "group"}:
        raise BadInput(f"{quote_value(value)} is no finding: it has a kind, and rules or a group")
    rules = [at("rules", read_text, each) for each in at("rules", a_list, fields.get("rules", []))]
    group = at("group", read_text, fields["group"]) if "group" in fields else None
    return Subject.subject_named(str(kind), rules, group)


_COLUMNS = ("rule", "kind", "severity", "because", "example")
_SOON = dt.timedelta(days=1)
"""Rules that end within this time are told."""


@dataclass(frozen=True, slots=True)
class Looking:
    """Options that choose findings."""

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

    def checks(self, terms: Terms) -> Checks:
        """Make the checks for lists judged by `terms`. Raises BadInput."""
        now = time_of(self.now, "--now") if self.now else dt.datetime.now(dt.UTC)
        return Checks(own=terms.own, returns=terms.returns, now=now, wide=Wide(self.wide_prefix, self.wide_ports))


class FailOn(Enum):
    """From which severity on the answer is no."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Failing:
    """Which findings count."""

    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="From which severity on to end with 1.")] = FailOn.WARNING
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="FILE", help="Findings that are known; only others are shown.")
    ] = None
    write_baseline: Annotated[
        str | None, typer.Option("--write-baseline", metavar="FILE", help="Write what is found as known findings.")
    ] = None

    def read_baseline(self) -> Baseline:
        """The findings of the baseline. Raises Missing and BadInput."""
        if self.baseline is None:
            return Baseline({})
        if self.write_baseline is not None:
            raise BadInput("give --baseline or --write-baseline, not both")
        return Baseline.read(self.baseline)

    def fails(self, severities: Iterable[str]) -> bool:
        """Whether findings of such severities are a no."""
        if self.fail_on is FailOn.NEVER:
            return False
        least = Severity(self.fail_on.value)
        return any(Severity(each).is_at_least(least) for each in severities)


@taking
def check(
    names: Files,
    reading: Reading,
    judging: Judging,
    looking: Looking,
    failing: Failing,
    recorded: Recorded,
    shown: Shown,
    report: Report = False,
) -> None:
    """Find rules that are shadowed, redundant, in conflict, too wide.

    Findings are exact: each comes with a packet that shows it, and with a severity. Errors say that the list does not
    do what a rule of it says; notes are ordinary. Ends with 1 if there is an error or a warning (--fail-on), or if a
    file says what cannot be carried over (then the list is not judged, unless you ask for its approximation).

    A TENANT's list is judged as the service judges it: with its prefixes, its domain's return traffic and its quota,
    and what is waived does not count (`aclflow acl waiver`). --write-baseline keeps what is found in a file; with
    --baseline only what is not in there is shown and counts.

    --traffic TENANT also says of a draft which packets that the tenant's rules with `log` recorded it would newly
    refuse or permit, by rule and by peer. That changes nothing, and counts for nothing in how the command ends.
    """
    recorded.check(shown)
    looking.checks(Terms(judging.prefixes(), judging.returns))  # what the caller says is held to before any list
    known = failing.read_baseline()
    judged = [
        _judge_list(one, terms_of([one.name], judging, reading), looking, reading, recorded)
        for one in read_every_list(names, reading)
    ]
    if failing.write_baseline is not None:
        written = {each.read.name: [finding.subject for finding in each.findings] for each in judged}
        Baseline(written).write(failing.write_baseline)
        remark(f"{failing.write_baseline}: {sum(map(len, written.values()))} findings are known from now on")
        judged = [replace(each, findings=findings_of(Acl())) for each in judged]
    judged = [_beside(each, known, alone=len(judged) == 1) for each in judged]
    if shown.is_for_people:
        for each in judged:
            _say_outcome(each, looking.most or len(each.findings), shown, alone=len(judged) == 1, report=report)
    elif shown.is_choosing or shown.form is Form.CSV:
        rows = ((each.read.name, *_row(finding)) for each in judged for finding in each.findings)
        shown.say(None, ("list", *_COLUMNS), rows)
    elif shown.form is Form.YAML:
        shown.say_document({**_write_head(judged), "findings": [*_write_findings(judged)]})
    else:  # one after the other, for there may be very many
        say_json_list(_write_head(judged), "findings", _write_findings(judged))
    severities = {severity.value for each in judged for severity in each.findings.severities}
    if failing.fails(severities) or not all(each.judged for each in judged):
        raise typer.Exit(ANSWER_IS_NO)


def _beside(outcome: Outcome, known: Baseline, *, alone: bool) -> Outcome:
    """Take known findings out of an outcome, and count them."""
    subjects = known.of(outcome.read.name, alone=alone)
    if not subjects:
        return outcome
    fresh, old = outcome.findings.split(subjects)
    return replace(outcome, findings=fresh, known=len(old), gone=len(set(subjects)) - len(old))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Findings of a list; none where it could not be judged for its losses."""

    read: Read
    findings: Findings
    judged: bool
    terms: Terms
    ending: tuple[Rule, ...] = ()
    """Rules whose time is over within a day."""
    waived: int = 0
    known: int = 0
    gone: int = 0
    """Known findings that are not found any more."""
    traffic: DraftTraffic | None = None
    """The effect on recorded traffic, where that is asked for."""


def _judge_list(read: Read, terms: Terms, looking: Looking, reading: Reading, recorded: Recorded) -> Outcome:
    checks = looking.checks(terms)
    if not (read.imported.exact or reading.approximate):
        return Outcome(read, findings_of(Acl()), judged=False, terms=terms)
    with counting(f"checking {read.name}", total=100) as told:
        found = findings_of(read.acl, checks, lambda done, total: told(100 * done // total))
    found, waived = found.split(_find_waived(terms, reading))
    return Outcome(
        read,
        found.of(looking.only) if looking.only else found,
        judged=True,
        terms=terms,
        ending=soon_over(read.acl, checks, _SOON),
        waived=len(waived),
        traffic=recorded.put_to(read.acl, reading.url),
    )


def _find_waived(terms: Terms, reading: Reading) -> frozenset[Subject]:
    """Read the waivers that hold for a tenant's list; none for a file."""
    if terms.tenant is None:
        return frozenset()
    with service(reading.url) as client:
        now = dt.datetime.now(dt.UTC)
        return frozenset(
            Subject.subject_named(each.kind, each.rules, each.group)
            for each in client.waivers.read_all(terms.tenant.id)
            if each.ends > now
        )


def _write_head(judged: Sequence[Outcome]) -> dict[str, object]:
    return {"files": [{**account_of(each.read), **_terms_json(each)} for each in judged]}


def _write_findings(judged: Sequence[Outcome]) -> Iterator[dict[str, object]]:
    return ({"file": each.read.name, **finding_json(finding)} for each in judged for finding in each.findings)


def _terms_json(outcome: Outcome) -> dict[str, object]:
    """Describe the terms of a judgement, for programs."""
    terms = outcome.terms
    return {
        "own": list(map(str, terms.own)),
        "return_traffic": terms.returns.value,
        "quota": terms.tenant and {"rules": terms.tenant.quota.rules, "flows": terms.tenant.quota.flows},
        "used": terms.tenant and {"rules": terms.tenant.used.rules, "flows": terms.tenant.used.flows},
        "waived": outcome.waived,
        "known": outcome.known,
        "expiring": [rule.id for rule in outcome.ending],
        **({} if outcome.traffic is None else {"traffic": plain_value(asdict(outcome.traffic))}),
    }


def _say_outcome(outcome: Outcome, most: int, shown: Shown, *, alone: bool, report: bool) -> None:
    read, findings = outcome.read, outcome.findings
    if report:
        say_account_of(read)
    else:
        for loss in read.imported.losses:
            complain(str(loss))
    if findings:
        if not alone:
            say(read.name, bold=True)
        shown.say(None, _COLUMNS, map(_row, findings[:most]))
    counts = _counts(outcome)
    if report:
        say(f"{read.name}: {counts}", bold=True)
    elif outcome.judged:
        remark(f"{read.name}: {counts}")
    if len(findings) > most:
        remark(f"the first {most} are shown, --most 0 shows all")
    if outcome.traffic is not None:
        say_traffic(outcome.traffic)
    for rule in outcome.ending:
        remark(f"'{rule.id}' ends at {rule.expires:%Y-%m-%d %H:%M} UTC")
    if outcome.terms.tenant is not None:
        remark(_terms_text(outcome.terms.tenant))


def _terms_text(tenant: SeenTenant) -> str:
    """Describe the service's terms: ``return traffic established; 48 of 50 rules, 12 flow entries``."""
    shares = [
        f"{'?' if used is None else used}{'' if limit is None else f' of {limit}'} {unit}"
        for unit, limit, used in (
            ("rules", tenant.quota.rules, tenant.used.rules),
            ("flow entries", tenant.quota.flows, tenant.used.flows),
        )
    ]
    return f"return traffic {tenant.return_traffic}; {', '.join(shares)}"


def _counts(outcome: Outcome) -> str:
    """How much was found: ``1 error, 2 notes (1 shadowed, 2 conflict), 3 waived``."""
    findings = outcome.findings
    words = [several(count, severity.value) for severity, count in findings.severities.items()]
    text = ", ".join(words) or "no findings"
    if words:
        text += f" ({', '.join(f'{count} {kind.value}' for kind, count in findings.counts.items())})"
    beside = (("waived", outcome.waived), ("known", outcome.known), ("known and gone", outcome.gone))
    return ", ".join((text, *(f"{count} {what}" for what, count in beside if count)))


def _row(finding: Finding) -> tuple[str, str, str, str, str]:
    """Return the row of a finding in a table.

    Its subject is the rule it is said of (of a conflict both), or the group.
    """
    about = finding.rules if finding.kind is Kind.CONFLICT else finding.rules[:1]
    subject = f"@{finding.group}" if finding.group else ", ".join(about)
    example = packet_text(finding.witness) if finding.witness else ""
    because = f"{finding.explanation} ({finding.weight.reason})"
    return subject, finding.kind.value, finding.severity.value, because, example

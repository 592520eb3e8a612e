"""`aclflow acl test` and `expectations`: check whether a list does what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated
from xml.etree import ElementTree

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import as_it_was_shown, ask_to_drop
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import STDIN, File, LiveList, read_file, text_of, whole, write_output
from orchestrator.cli.options import AsJson, Judging, Reading, TenantName, Url, refuse_tracked, taking
from orchestrator.cli.terminal import at_work, remark, say, say_json, several
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.describe import judged_expectations
from orchestrator.policy.expectations import Setting, judge
from orchestrator.policy.expectationtext import Expectations, read_expectations
from orchestrator.wire.expectations import JudgedExpectation, JudgedList

_DROPS, _MOVED = "Drop these expectations?", "somebody changed the expectations meanwhile"


@taking
def hold_list(
    reading: Reading,
    judging: Judging,
    name: File,
    expected: Annotated[
        list[str] | None, typer.Option("--expect", "-e", help="A file of expectations; may be given several times.")
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            help="Test a file as if it were this tenant's list at the service.",
            autocompletion=complete.tenants,
        ),
    ] = None,
    junit: Annotated[str | None, typer.Option("--junit", help="A file to write JUnit XML to, for CI.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a list against expectations such as `alice reaches web1:443`.

    Another one is `nobody reaches db1:22 from outside`.

    An answer is exact: it is about every packet, and a broken expectation comes with a packet that breaks it. The
    files say what names stand for (`alice is 192.0.2.10`) and which prefixes are yours (`own is 198.51.100.0/24`, or
    --own). For a TENANT, or a file with --tenant, the service knows the prefixes, the endpoints by name and the
    operator's rules; without --expect it takes what the tenant keeps. Ends with 1 if an expectation is broken, 2 if a
    file cannot be read.
    """
    refuse_tracked(judging.return_traffic)
    live = LiveList.from_name(name)
    if tenant is not None or (live is not None and live.version is None):
        _hold_live(name, tenant, live, reading, expected or (), junit, as_json=as_json)
        return
    if not expected:
        raise BadInput("what is expected of it? Name a file", place="--expect")
    found = [read_expectations(*_text(each)) for each in expected]
    acl = whole(read_file(name, reading), reading)
    outcomes: list[JudgedExpectation] = []
    with at_work(f"holding {len(acl.rules)} rules to {sum(len(each.sentences) for each in found)} expectations"):
        for each in found:
            setting = _make_setting(each, judging)
            outcomes += judged_expectations(judge(each.sentences, acl, setting))
    say_outcomes(name, outcomes, junit, as_json=as_json)


def _hold_live(
    name: str,
    tenant: str | None,
    live: LiveList | None,
    reading: Reading,
    expected: Sequence[str],
    junit: str | None,
    *,
    as_json: bool,
) -> None:
    """Let the service check a tenant's list, or one in its place, against expectations.

    The expectations are in files, or those that the tenant keeps.
    """
    is_current = live is not None and live.version is None and tenant in (None, live.tenant)
    acl = None if is_current else whole(read_file(name, reading), reading)
    owner = tenant or (live.tenant if live is not None else "")
    texts: list[tuple[str | None, str]] = [*map(_text, expected)] or [(None, "expectations")]
    outcomes: list[JudgedExpectation] = []
    version = None
    with service(reading.url) as client, at_work(f"holding {name} to what is expected of it"):
        for text, shown in texts:
            found = client.acls.test(owner, acl, text, name=shown)
            outcomes += found.expectations
            version = found.version
    say_outcomes(name, outcomes, junit, as_json=as_json, version=version)


@taking
def show_kept(tenant: TenantName, url: Url = None, as_json: AsJson = False) -> None:
    """Show the expectations that a tenant keeps for its list."""
    with service(url) as client:
        kept = client.expectations.read(tenant)
    if as_json:
        say_json(kept)
        return
    for line in kept.text.splitlines():
        say(line)
    since = f"kept by {kept.by()} since {kept.created:%Y-%m-%d %H:%M:%S}" if kept.created else "nothing is expected"
    remark(since)


@taking
def keep(
    tenant: TenantName,
    name: Annotated[str, typer.Argument(metavar="FILE", help="Expectations; - is standard input.")],
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop kept lines that FILE lacks, without asking.")] = False,
) -> None:
    """Hold each change of a tenant's list to a file of expectations from now on.

    The file replaces what was kept. Kept lines that it lacks are shown, and you are asked before they are dropped;
    elsewhere than on a terminal say --yes.

    A change that breaks one is refused, with the packet. `aclflow acl apply --despite-expectations` writes it anyway.
    """
    text, shown = _text(name)
    count = len(read_expectations(text, shown).sentences)
    with service(url) as client:
        kept = client.expectations.read(tenant)
        ask_to_drop(_dropped_lines(kept.text, text), _DROPS, yes=yes)
        with as_it_was_shown(_MOVED):
            client.expectations.keep(tenant, text, etag=kept.etag)
        say(f"{tenant}: {several(count, 'expectation')}, held from now on")
        with suppress(AclflowError):  # they are kept, whatever becomes of this
            _remark_broken(tenant, client.acls.test(tenant))


def _remark_broken(tenant: str, found: JudgedList) -> None:
    """Tell which part of kept expectations the current list breaks."""
    if found.broken:
        are, it = ("is", "it") if found.broken == 1 else ("are", "them")
        told = f"{several(found.broken, 'expectation')} {are} broken by version {found.version} already"
        remark(f"{told}: no change is refused for {it} until a version keeps {it} (aclflow acl test {tenant})")


def _dropped_lines(kept: str, text: str) -> list[str]:
    """Return the lines of kept expectations that a text lacks, without comments."""
    stays = {line.strip() for line in text.splitlines()}
    lines = [line.strip() for line in kept.splitlines()]
    return [line for line in lines if line and not line.startswith("#") and line not in stays]


@taking
def delete_kept(
    tenant: TenantName,
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop them without asking.")] = False,
) -> None:
    """Drop the expectations of a tenant's list, after showing them.

    Elsewhere than on a terminal say --yes.
    """
    with service(url) as client:
        kept = client.expectations.read(tenant)
        ask_to_drop(_dropped_lines(kept.text, ""), _DROPS, yes=yes)
        with as_it_was_shown(_MOVED):
            client.expectations.delete(tenant, etag=kept.etag)
    say(f"{tenant}: nothing is expected any more")


def say_outcomes(
    name: str, outcomes: Sequence[JudgedExpectation], junit: str | None, *, as_json: bool, version: int | None = None
) -> None:
    """Print what became of expectations, and end with 1 if any is broken."""
    broken = [each for each in outcomes if not each.kept]
    if junit is not None:
        write_output(junit_text(name, outcomes), junit)
    if as_json:
        say_json({"list": name, "version": version, "broken": len(broken), "expectations": list(outcomes)})
    else:
        for each in outcomes:
            say(f"{'kept  ' if each.kept else 'BROKEN'}  {each.text}", colour=None if each.kept else "red")
            if not each.kept:
                say(f"        {each.place}: {each.witness}")
                say(f"        {how_decided(each)}")
        remark(f"{len(outcomes) - len(broken)} of {len(outcomes)} expectations are kept")
    if broken:
        raise typer.Exit(ANSWER_IS_NO)


def how_decided(outcome: JudgedExpectation) -> str:
    """The lists that decide the packet of a broken expectation, in words."""
    return "; ".join(
        f"{step.direction or 'the operator'}: {step.action}, by {f'rule {step.rule!r}' if step.rule else 'the default'}"
        for step in outcome.decided
    )


def junit_text(name: str, outcomes: Sequence[JudgedExpectation]) -> str:
    """The outcomes as the XML that CI systems read: a test case for each expectation."""
    broken = sum(not each.kept for each in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(broken), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(f"aclflow {name}"), "skipped": "0", **counts})
    for each in outcomes:
        file, _, line = each.place.rpartition(", line ")
        about = {"classname": _xml(file or each.place), "name": _xml(each.text), "time": "0"}
        if line.isdigit():
            about |= {"file": _xml(file), "line": line}
        case = ElementTree.SubElement(suite, "testcase", about)
        if not each.kept:
            text = _xml(f"{each.place}: {each.text}\n{each.witness}\n{how_decided(each)}")
            failure = ElementTree.SubElement(case, "failure", {"type": "broken", "message": _xml(each.witness or "")})
            failure.text = text
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _xml(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def _text(name: str) -> tuple[str, str]:
    """A file's text, and its name for people."""
    return text_of(name), "standard input" if name == STDIN else name


def _make_setting(found: Expectations, judging: Judging) -> Setting:
    own = (*found.own, *judging.prefixes())
    if not own:
        raise BadInput(
            "which prefixes are yours is not said: write `own is 198.51.100.0/24`, or use --own", place="own"
        )
    return Setting(own, found.names, returns=judging.returns)

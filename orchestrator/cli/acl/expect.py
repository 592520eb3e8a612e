"""`aclflow acl test`: whether a list permits and denies what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from xml.etree import ElementTree

import typer

from orchestrator.cli.files import STDIN, read_file, read_plain, whole, write_output
from orchestrator.cli.options import AsJson, Judging, Reading, taking
from orchestrator.cli.terminal import at_work, remark, say, say_json
from orchestrator.errors import BadInput
from orchestrator.policy.describe import judged_expectations
from orchestrator.policy.expectations import Setting, judge
from orchestrator.policy.expectationtext import MOST_BYTES, Expectations, read_expectations
from orchestrator.wire.expectations import JudgedExpectation

_ANSWER_IS_NO = 1


@taking
def hold_list(
    reading: Reading,
    judging: Judging,
    name: Annotated[str, typer.Argument(metavar="FILE", help="An access list; - is standard input.")],
    expected: Annotated[
        list[str], typer.Option("--expect", "-e", help="A file of expectations; may be given several times.")
    ],
    junit: Annotated[str | None, typer.Option("--junit", help="A file to write JUnit XML to, for CI.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a list to expectations such as `alice reaches web1:443` or `nobody reaches db1:22 from outside`.

    An answer is exact: it is about every packet, and a broken expectation comes with a packet that breaks it. The
    files say what names stand for (`alice is 192.0.2.10`) and which prefixes are yours (`own is 198.51.100.0/24`, or
    --own). Ends with 1 if an expectation is broken, 2 if a file cannot be read.
    """
    found = [read_expectations(*_text(each)) for each in expected]
    acl = whole(read_file(name, reading), reading)
    outcomes: list[JudgedExpectation] = []
    with at_work(f"holding {len(acl.rules)} rules to {sum(len(each.sentences) for each in found)} expectations"):
        for each in found:
            setting = _setting(each, judging)
            outcomes += judged_expectations(judge(each.sentences, acl, setting))
    say_outcomes(name, outcomes, junit, as_json=as_json)


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
        raise typer.Exit(_ANSWER_IS_NO)


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
    return read_plain(name, MOST_BYTES), "standard input" if name == STDIN else name


def _setting(found: Expectations, judging: Judging) -> Setting:
    own = (*found.own, *judging.prefixes())
    if not own:
        raise BadInput(
            "which prefixes are yours is not said: write `own is 198.51.100.0/24`, or use --own", place="own"
        )
    return Setting(own, found.names, returns=judging.return_traffic)

"""`aclflow acl diff`: which packets a change permits and denies.

It compares files, and versions of lists at the service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.convert import say_account_of
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import read_files, terms_of, whole
from orchestrator.cli.options import AsJson, Judging, Reading, Report, taking
from orchestrator.cli.terminal import at_work, say, say_json, several
from orchestrator.policy.describe import box_text, change_json, change_text
from orchestrator.policy.difference import Change, difference

_HELP = "a file (- is standard input), TENANT, or TENANT@VERSION."
Before = Annotated[str, typer.Argument(metavar="BEFORE", help=f"A list: {_HELP}", autocompletion=complete.lists)]
After = Annotated[str, typer.Argument(metavar="AFTER", help=f"Its successor: {_HELP}", autocompletion=complete.lists)]


@taking
def diff(
    before: Before,
    after: After,
    reading: Reading,
    judging: Judging,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Show which packets a change permits or denies.

    The answer is exact and says nothing of rules that only changed their words or places. Each line is a set of packets
    whose fate changes, + for those that become permitted, with the rules that decide them before and after; where rules
    before these take too many parts of it to be cut out, they are named or counted. Ends with 1 if there is any.

    For lists of one tenant its prefixes and its domain's return traffic are known; of files, say --own.
    """
    terms = terms_of((before, after), judging, reading)
    old, new = read_files([before, after], reading)
    old_acl, new_acl = whole(old, reading), whole(new, reading)
    with at_work(f"comparing {len(old_acl.rules)} with {len(new_acl.rules)} rules"):
        found = difference(old_acl, new_acl, own=terms.own, returns=terms.returns)
    if as_json:
        say_json({"permitted": [*map(change_json, found.permitted)], "denied": [*map(change_json, found.denied)]})
    else:
        if report:
            say_account_of(old)
            say_account_of(new)
        _say(found.permitted, "+", "green")
        _say(found.denied, "-", "red")
        if report:
            sets = several(len(found.permitted), "set")
            say(f"{sets} of packets newly permitted, {len(found.denied)} newly denied", bold=True)
    if found:
        raise typer.Exit(ANSWER_IS_NO)


def say_change(change: Any) -> None:
    """A change of packets' fate, as the service tells it."""
    becomes, less = change["becomes"], (*change["less_before"], *change["less_after"])
    told = change_text(change["direction"], change["summary"], change["before"], change["after"], less)
    say(f"{'+' if becomes == 'permit' else '-'} {told}", colour="green" if becomes == "permit" else "red")


def _say(changes: Iterable[Change], sign: str, colour: str) -> None:
    for change in changes:
        less = (*change.less_before, *change.less_after)
        told = change_text(change.direction.value, box_text(change.box), change.before, change.after, less)
        say(f"{sign} {told}", colour=colour)

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
from orchestrator.policy.difference import Change, Fate, difference

_HELP = "a file (- is standard input), TENANT, or TENANT@VERSION."
Before = Annotated[str, typer.Argument(metavar="BEFORE", help=f"A list: {_HELP}", autocompletion=complete.lists)]
After = Annotated[str, typer.Argument(metavar="AFTER", help=f"Its successor: {_HELP}", autocompletion=complete.lists)]

_IN_JSON: dict[Fate, str] = {"permit": "permitted", "deny": "denied", "stateless": "stateless", "tracked": "tracked"}
_FATES: dict[Fate, tuple[str, str, str]] = {
    "permit": ("+", "green", ""),
    "deny": ("-", "red", ""),
    "stateless": ("~", "yellow", ", stateless from then on"),
    "tracked": ("~", "yellow", ", by its connection from then on"),
}
"""The sign, the colour, and what is added to the line of a set of packets."""


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
    before these take too many parts of it to be cut out, they are named or counted. Where connections are tracked, ~ is
    for packets that stateless rules decide from then on, or no more. Ends with 1 if there is any.

    For lists of one tenant its prefixes and its domain's return traffic are known; of files, say --own.
    """
    terms = terms_of((before, after), judging, reading)
    old, new = read_files([before, after], reading)
    old_acl, new_acl = whole(old, reading), whole(new, reading)
    with at_work(f"comparing {len(old_acl.rules)} with {len(new_acl.rules)} rules"):
        found = difference(old_acl, new_acl, own=terms.own, returns=terms.returns)
    if as_json:
        say_json({_IN_JSON[fate]: [*map(change_json, changes)] for fate, changes in found.by_fate})
    else:
        if report:
            say_account_of(old)
            say_account_of(new)
        for fate, changes in found.by_fate:
            _say_changes(changes, fate)
        if report:
            sets = several(len(found.permitted), "set")
            marked = len(found.stateless) + len(found.tracked)
            more = f", {marked} decided as before, but by connections no more, or from then on" if marked else ""
            say(f"{sets} of packets newly permitted, {len(found.denied)} newly denied{more}", bold=True)
    if found:
        raise typer.Exit(ANSWER_IS_NO)


def say_change(change: Any) -> None:
    """A change of packets' fate, as the service tells it."""
    becomes, less = change["becomes"], (*change["less_before"], *change["less_after"])
    _say_fate(becomes, change_text(change["direction"], change["summary"], change["before"], change["after"], less))


def _say_changes(changes: Iterable[Change], fate: Fate) -> None:
    for change in changes:
        less = (*change.less_before, *change.less_after)
        told = change_text(change.direction.value, box_text(change.box), change.before, change.after, less)
        _say_fate(fate, told)


def _say_fate(fate: Fate, told: str) -> None:
    sign, colour, note = _FATES[fate]
    say(f"{sign} {told}{note}", colour=colour)

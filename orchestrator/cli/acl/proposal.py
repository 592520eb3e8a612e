"""Proposals of lists: merged with others' edits, shown, and asked about."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.acl.diff import say_change
from orchestrator.cli.exitcodes import ANSWER_IS_NO, INTERRUPTED
from orchestrator.cli.terminal import at_work, complain, remark, say, say_json
from orchestrator.client import AclSeen, Client
from orchestrator.client.records import Json
from orchestrator.errors import AclflowError, BadInput, NotFound, Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native_values import at, read_text
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.policy.headline import UNCHANGED, Danger, Sentence, counts_wanted, headline
from orchestrator.policy.merge import merge
from orchestrator.policy.model import Acl
from orchestrator.policy.rulechanges import ListChanges, RuleChange, list_changes
from orchestrator.policy.ruletext import rule_text
from orchestrator.wire.expectations import JudgedExpectation

MOST_SHOWN = 40
_COLOURS = {Danger.HIGH: "red", Danger.SOME: "yellow", Danger.NONE: None}
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
LONGEST_COMMENT = 1000
_DAY = dt.timedelta(hours=24)
_COUNTED = 500
"""Rules that the service tells the counts of at once."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Options of a change: show it only, or carry it out without asking.

    `message` is kept with it.
    """

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Carry it out without asking.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False
    message: Annotated[str, typer.Option("--message", "-m", help="A line about the change, kept in its history.")] = ""

    def check(self) -> None:
        """Refuse a message that cannot be kept. Raises BadInput."""
        at("--message", read_text, self.message)
        if len(self.message) > LONGEST_COMMENT:
            raise BadInput(f"longer than {LONGEST_COMMENT} characters", place="--message")

    def is_agreed(self, question: str) -> bool:
        """Whether to carry it out; asks on a terminal.

        Raises BadInput where nobody can be asked. By then the user knows what is wrong with the change itself.
        """
        return not self.dry_run and is_sure(question, yes=self.yes, others=", --dry-run only shows it")


def is_sure(question: str, *, yes: bool, others: str = "") -> bool:
    """Ask on a terminal, unless `yes`. Raises BadInput where nobody can be asked.

    `others` says which options there are besides --yes.
    """
    if not (yes or (sys.stdin.isatty() and sys.stderr.isatty())):
        raise BadInput(f"nobody can be asked without a terminal: --yes carries it out{others}")
    if yes:
        return True
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        remark("")
        complain("nothing was changed")
        raise typer.Exit(INTERRUPTED) from None


def end_unless(agreed: bool) -> None:
    """End with 1, and say that nothing was changed, unless the answer was yes."""
    if not agreed:
        say("nothing was changed")
        raise typer.Exit(ANSWER_IS_NO)


def ask_to_drop(lost: Sequence[str], question: str, *, yes: bool, most: int | None = None) -> None:
    """Show what goes, `most` of it, and ask whether to drop it.

    Ends with 1 where the answer is no. Raises BadInput where nobody can be asked.
    """
    for line in lost[:most]:
        say(f"  - {line}", colour="yellow")
    if most is not None:
        say_rest(len(lost))
    end_unless(not lost or is_sure(question, yes=yes))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A list that is to replace another one.

    `acl` holds what others did since `base` as well.
    """

    tenant: str
    current: AclSeen
    acl: Acl
    base: int
    rules: ListChanges
    packets: Sequence[Json] | None
    headline: tuple[Sentence, ...]
    broken: tuple[JudgedExpectation, ...] = ()
    """The expectations of the list that would not hold any more."""

    @property
    def is_merged(self) -> bool:
        return self.base != self.current.version

    def document(self) -> dict[str, object]:
        """Return the proposal as JSON, for programs."""
        return {
            "tenant": self.tenant,
            "version": self.current.version,
            "base_version": self.base,
            "merged": self.is_merged,
            "headline": [{"text": each.text, "danger": each.danger.name.lower()} for each in self.headline],
            "rules": [{"rule": each.id, "change": each.kind} for each in self.rules.rules],
            "groups": list(self.rules.groups),
            "defaults": [way.value for way in self.rules.defaults],
            "difference": self.packets,
            "broken": list(self.broken),
        }


def base_of(taken_from: TakenFrom | None, stated: int | None, tenant: str, place: str) -> int | None:
    """Return the version that a file was edited from. Raises BadInput.

    The caller states it, else the file does.
    """
    if taken_from is not None and taken_from.tenant != tenant:
        raise BadInput(
            f"it was taken from tenant '{taken_from.tenant}', not from '{tenant}': if that is meant, take it out",
            place=place,
        )
    return stated if stated is not None or taken_from is None else taken_from.version


def propose(client: Client, tenant: str, acl: Acl, base: int | None) -> Proposal:
    """Propose a list on top of edits since `base`; None: it replaces the list.

    Ends with 1, naming what stands in the way, where the two do not go together. Raises what the client raises.
    """
    current = client.acls.read(tenant)
    wanted = acl if base in (None, current.version) else _merge_edits(client, current, acl, tenant, base)
    changes = list_changes(current.acl, wanted)
    packets: Sequence[Json] | None = ()
    if changes:
        with at_work(f"comparing {len(wanted.rules)} with {len(current.acl.rules)} rules"):
            packets = client.acls.check(tenant, wanted, ("difference",), against=current.version).difference
    says = _make_headline(client, tenant, wanted, packets) if changes else (UNCHANGED,)
    broken = _broken(client, tenant, wanted) if changes else ()
    return Proposal(tenant, current, wanted, current.version if base is None else base, changes, packets, says, broken)


def _make_headline(client: Client, tenant: str, wanted: Acl, packets: Sequence[Json] | None) -> tuple[Sentence, ...]:
    return headline(
        packets,
        own=tuple(map(Prefix.parse, client.tenants.read(tenant).prefixes)),
        kept={rule.id for rule in wanted.rules},
        packets=_counts(client, tenant, packets),
    )


def _broken(client: Client, tenant: str, wanted: Acl) -> tuple[JudgedExpectation, ...]:
    """Find expectations that the list keeps and another one breaks.

    Nothing where that cannot be told now.
    """
    with suppress(AclflowError):
        broken = [each for each in client.acls.test(tenant, wanted).expectations if not each.kept]
        now = client.acls.test(tenant).expectations if broken else ()
        kept = {each.place for each in now if each.kept}
        return tuple(each for each in broken if each.place in kept)
    return ()


def _merge_edits(client: Client, current: AclSeen, mine: Acl, tenant: str, base: int | None) -> Acl:
    try:
        began = client.acls.read(tenant, version=base).acl
    except NotFound as error:
        raise NotFound(
            f"there is no version {base} to compare with ({error.reason}): take the list again with `aclflow acl show`",
            place="base version",
        ) from None
    found = merge(began, mine, current.acl)
    if found.acl is not None:
        return found.acl
    complain(f"the list is at version {current.version}; yours was taken from version {base}, and they do not merge:")
    for conflict in found.conflicts[:MOST_SHOWN]:
        complain(f"  {conflict}")
    complain("nothing was changed: take the list again with `aclflow acl show`, and edit that")
    raise typer.Exit(ANSWER_IS_NO)


def _counts(client: Client, tenant: str, packets: Sequence[Json] | None) -> dict[str, int]:
    """Count the last day's packets of rules that lose some.

    Nothing is counted where that cannot be told.
    """
    rules = counts_wanted(packets)
    if not 0 < len(rules) <= _COUNTED:
        return {}
    with suppress(AclflowError):
        return client.hits.read_packets_since(tenant, rules, dt.datetime.now(dt.UTC) - _DAY)
    return {}


@contextmanager
def as_it_was_shown(moved: str = "the list was changed while you looked at this") -> Iterator[None]:
    """Say, where something moved since it was shown, that nothing was written. Raises Stale."""
    try:
        yield
    except Stale:
        raise Stale(f"{moved}: nothing was written; run it again") from None


def is_agreed(proposal: Proposal, asking: Asking, question: str, as_json: bool) -> bool:
    """Show a proposal, ask, and return whether to carry it out.

    Ends with 1 where the answer is no.
    """
    if as_json and asking.dry_run:
        say_json(proposal.document())
    elif not as_json:
        say_proposal(proposal)
    if asking.dry_run:
        return False
    end_unless(not proposal.rules or asking.is_agreed(question))
    return True


def say_proposal(proposal: Proposal) -> None:
    """Show it: the sentences, the rules, the packets."""
    at = f"version {proposal.current.version}"
    if proposal.is_merged:
        at += f", merged with what was changed since version {proposal.base}"
    say(f"{proposal.tenant}, {at}:", bold=True)
    say_headline(proposal.headline)
    for expected in proposal.broken:
        say(f"  breaks the expectation `{expected.text}`: {expected.witness}", colour="red", bold=True)
    changes = proposal.rules
    if changes.rules:
        say("rules:", bold=True)
    for change in changes.rules[:MOST_SHOWN]:
        say(f"  {_SIGNS[change.kind]} {_change_text(change)}")
    say_rest(len(changes.rules))
    for name in changes.groups:
        say(f"  ~ group {name}")
    for way in changes.defaults:
        say(f"  ~ {way.value} default: {proposal.acl.default(way).value}")
    if proposal.packets:
        say("packets:", bold=True)
        for each in proposal.packets[:MOST_SHOWN]:
            say_change(each)
        say_rest(len(proposal.packets))


def say_headline(sentences: Sequence[Sentence]) -> None:
    """Say what a change does, the most dangerous first, coloured by danger."""
    for sentence in sentences:
        say(f"  {sentence.text}", colour=_COLOURS[sentence.danger], bold=sentence.danger is Danger.HIGH)


def _change_text(change: RuleChange) -> str:
    if change.kind == "moved":
        return f"{change.id}  moved"
    if change.before is None or change.after is None:
        rule = change.before or change.after
        return f"{change.id}  {rule_text(rule) if rule else ''}"
    before, after = rule_text(change.before), rule_text(change.after)
    if before == after:
        return f"{change.id}  {after}  (its remarks change)"
    return f"{change.id}  {before}  becomes  {after}"


def say_rest(number: int) -> None:
    """Say how many more there are than were shown."""
    if number > MOST_SHOWN:
        say(f"  and {number - MOST_SHOWN} more")

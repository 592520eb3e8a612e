"""`aclflow operator-rule`: the operator's rules, which stand above all tenants of a domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import MOST_SHOWN, Asking, end_unless, say_headline, say_rest
from orchestrator.cli.acl.servicelists import Waiting, say_rules
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.options import DomainName, Url, taking
from orchestrator.cli.proposals import say_proposal
from orchestrator.cli.ruleoptions import PlaceOptions, RuleOptions, naming_rules
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say
from orchestrator.errors import BadInput, Conflict, NotFound, Stale
from orchestrator.policy.describe import box_text
from orchestrator.policy.endpointnames import reference_text
from orchestrator.policy.model import Acl, ReturnTraffic, Rule
from orchestrator.policy.operatorchanges import OperatorChanges, compare_operator_rules
from orchestrator.policy.rulechanges import list_changes
from orchestrator.policy.ruletext import rule_text

Rules = tuple[Rule, ...]
OperatorRule = Annotated[
    str, typer.Argument(metavar="RULE", help="The rule's id.", autocompletion=complete.operator_rules)
]
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
_TRIES = 5
"""How often an edit is made again on top of what another operator wrote meanwhile."""


@taking
def list_all(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List the operator's rules of a domain, in their order."""
    with service(url) as client:
        found = client.domains.read_operator_rules(domain)
    say_rules(found, shown)


@taking
def show(domain: DomainName, rule: OperatorRule, shown: Shown, url: Url = None) -> None:
    """Show a rule of the operator's."""
    with service(url) as client:
        found = _find_rule(client.domains.read_operator_rules(domain), rule)
    say_rules([found], shown)


@taking
def add(
    domain: DomainName,
    rule: OperatorRule,
    said: RuleOptions,
    place: PlaceOptions,
    waiting: Waiting,
    asking: Asking,
    url: Url = None,
) -> None:
    """Add a rule that holds for every tenant of a domain.

    Without a place, it goes to the end.
    """
    new = said.new_rule(rule)
    stated = place if place.is_said else replace(place, last=True)

    def add_to(rules: Rules) -> Rules:
        names = [each.id for each in rules]
        if new.id in names:
            raise Conflict(f"there is a rule '{rule}' already: `aclflow operator-rule set` changes it", place="RULE")
        index = stated.index(names)
        return (*rules[:index], new, *rules[index:])

    _change(domain, rule, add_to, waiting, asking, url)


@taking
def set_up(
    domain: DomainName, rule: OperatorRule, said: RuleOptions, waiting: Waiting, asking: Asking, url: Url = None
) -> None:
    """Change what is said of a rule, where it stands. All else of it stays."""

    def set_in(rules: Rules) -> Rules:
        new = said.apply_to(_find_rule(rules, rule))
        return tuple(new if each.id == new.id else each for each in rules)

    _change(domain, rule, set_in, waiting, asking, url)


@taking
def move(
    domain: DomainName, rule: OperatorRule, place: PlaceOptions, waiting: Waiting, asking: Asking, url: Url = None
) -> None:
    """Move a rule to another place; without one, to the end."""
    stated = place if place.is_said else replace(place, last=True)

    def move_in(rules: Rules) -> Rules:
        moved = _find_rule(rules, rule)
        others = [each for each in rules if each is not moved]
        index = stated.index([each.id for each in others])
        return (*others[:index], moved, *others[index:])

    _change(domain, rule, move_in, waiting, asking, url)


@taking
def delete(domain: DomainName, rule: OperatorRule, waiting: Waiting, asking: Asking, url: Url = None) -> None:
    """Delete a rule."""

    def delete_from(rules: Rules) -> Rules:
        gone = _find_rule(rules, rule)
        return tuple(each for each in rules if each is not gone)

    _change(domain, rule, delete_from, waiting, asking, url)


def _find_rule(rules: Rules, name: str) -> Rule:
    found = next((each for each in rules if each.id == name), None)
    if found is None:
        raise NotFound(f"the operator has no rule '{name}'", place="RULE")
    return found


def _change(
    domain: str,
    rule: str,
    edit: Callable[[Rules], Rules],
    waiting: Waiting,
    asking: Asking,
    url: str | None,
) -> None:
    """Show an edit, ask, write it and wait.

    Changes of others meanwhile are kept, unless the edit is about the same rule.
    """
    with service(url) as client:
        seen = client.domains.read_operator_rules_with_etag(domain)
        wanted = edit(seen.rules)
        _refuse_foreign(_find_named(wanted, rule))
        asking.check()
        if asking.message:
            remark("the operator's rules have no history: the message is not kept")
        returns = ReturnTraffic(client.domains.read(domain).return_traffic)
        with naming_rules(wanted):
            compared = compare_operator_rules(Acl(seen.rules), Acl(wanted), returns)
            is_agreed = _is_agreed(domain, seen.rules, wanted, compared, asking)
        if not is_agreed:
            return
        written = None
        for _ in range(_TRIES):
            try:
                with naming_rules(wanted):
                    written = client.domains.set_operator_rules(domain, wanted, etag=seen.etag)
                break
            except Stale:
                shown, seen = seen.rules, client.domains.read_operator_rules_with_etag(domain)
                wanted = edit(seen.rules)
                if _find_named(shown, rule) != _find_named(seen.rules, rule):
                    break
        if written is None:
            raise Stale("the rule was changed while you looked at this: nothing was written; run it again")
        if say_proposal(f"domain/{domain}", written):
            return
        state = wait_enforced(client, domain, written.generation, waiting.timeout) if waiting.wait else None
        held = f", {state.describe_done()}" if state and state.done else ""
        say(f"{domain}: version {written.version} of the operator's rules, generation {written.generation}{held}")
        if state:
            end_unless_enforced(state, waiting.timeout)


def _refuse_foreign(rule: Rule | None) -> None:
    """Refuse what only a tenant's rule can say.

    Raises BadInput that names the option.
    """
    if rule is None:
        return
    if rule.expires is not None:
        raise BadInput("an operator's rule holds until it is deleted", place="--ends")
    for option, side in (("--source", rule.source), ("--destination", rule.destination)):
        for group in side.groups:
            word = reference_text(f"@{group}")
            raise BadInput(f"'{word}' belongs to a tenant: an operator's rule names prefixes, or any", place=option)


def _find_named(rules: Sequence[Rule], name: str) -> Rule | None:
    return next((each for each in rules if each.id == name), None)


def _is_agreed(domain: str, before: Rules, after: Rules, compared: OperatorChanges, asking: Asking) -> bool:
    """Show the edit, ask, and return whether to carry it out.

    Ends with 1 where the answer is no.
    """
    say(f"{domain}, for every tenant:", bold=True)
    say_headline(compared.says({rule.id for rule in after}))
    say("rules:", bold=True)
    for change in list_changes(Acl(before), Acl(after)).rules:
        rule = change.after or change.before
        say(f"  {_SIGNS[change.kind]} {change.id}  {rule_text(rule) if rule else ''}")
    for title, packets in compared.parts():
        if packets:
            say(f"{title.removesuffix(' for every tenant').lower()}:", bold=True)
        for packet in packets[:MOST_SHOWN]:
            say(f"  {packet.direction.value}: {box_text(packet.box)}")
        say_rest(len(packets))
    if asking.dry_run:
        return False
    end_unless(asking.is_agreed(f"Change the operator's rules of {domain}, for every tenant?"))
    return True

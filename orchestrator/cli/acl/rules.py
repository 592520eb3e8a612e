"""`aclflow acl rule`: change one rule of a tenant's list, after showing the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from orchestrator.cli.acl.proposal import Asking, is_agreed, propose
from orchestrator.cli.acl.servicelists import Despite, Waiting, follow, say_rules
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, TenantName, Url, taking
from orchestrator.cli.ruleoptions import PlaceOptions, RuleName, RuleOptions, naming_rules
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark
from orchestrator.client import AclSeen, Client, Written
from orchestrator.errors import BadInput, Conflict, NotFound, Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.endpointnames import endpoint_of_group
from orchestrator.policy.model import AddressGroup, GroupName, Rule
from orchestrator.policy.ruleplace import suggest_place

_NAMED = 3
_FIND = "query.find"
"""The service's name of the words that are looked for."""
Question = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WORD]...", help="Such as 198.51.100.10:443, web1:443, tcp, :https, @office."),
]


@dataclass(frozen=True, slots=True)
class Carrying:
    """How a change is asked about, written and followed."""

    waiting: Waiting
    asking: Asking
    despite: Despite = False
    url: Url = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one rule: the list before, the rules after, and its request."""

    seen: AclSeen
    rules: Sequence[Rule]
    write: Callable[[], Written]


@taking
def list_all(tenant: TenantName, shown: Shown, asked: Question = None, url: Url = None) -> None:
    """List the rules of a tenant's list in their order, or those that match.

    198.51.100.10:443 and web1:443 find what decides a connection to there; tcp, :https, deny, 198.51.100.0/24 what can
    match or does that; any other word finds rules that say it. Several words go together.
    """
    try:
        with service(url) as client:
            found = list(client.acls.read_rules(tenant, " ".join(asked or ())))
    except BadInput as error:
        error.place = "WORD" if error.place == _FIND else error.place
        raise
    say_rules(found, shown)


@taking
def show(tenant: TenantName, rule: RuleName, shown: Shown, url: Url = None) -> None:
    """Show a rule of a tenant's list."""
    with service(url) as client:
        found = client.acls.read_rule(tenant, rule).rule
    say_rules([found], shown)


@taking
def add(tenant: TenantName, rule: RuleName, said: RuleOptions, place: PlaceOptions, how: Carrying) -> None:
    """Add a rule, after showing what that changes, and wait until it is in force.

    Without a place it goes before the rule that decides its packets otherwise now, else to the end. A permit stays
    behind rules that deny a part of it: exceptions hold. Source and destination must be said; `any` is every address.
    """
    new = said.new_rule(rule)
    with service(how.url) as client:
        seen = _seen_for(client, tenant, new)
        names = [each.id for each in seen.acl.rules]
        if new.id in names:
            raise Conflict(f"there is a rule '{rule}' already: `aclflow acl rule set` changes it", place="RULE")
        index = place.index(names) if place.is_said else _suggested_index(seen, new)
        wanted = [*seen.acl.rules[:index], new, *seen.acl.rules[index:]]
        before = names[index] if index < len(names) else None
        edit = Edit(
            seen,
            wanted,
            lambda: client.acls.insert_rule(
                tenant, new, before=before, comment=how.asking.message, despite=how.despite
            ),
        )
        _carry_out(client, tenant, edit, how)


@taking
def set_up(tenant: TenantName, rule: RuleName, said: RuleOptions, how: Carrying) -> None:
    """Change a rule in its place, after showing what that changes.

    All that is not named stays.
    """
    with service(how.url) as client:
        _, old, etag = _read(client, tenant, rule)
        new = said.apply_to(old)
        seen = _seen_for(client, tenant, new)
        edit = Edit(
            seen,
            [new if each.id == new.id else each for each in seen.acl.rules],
            lambda: client.acls.put_rule(tenant, new, etag=etag, comment=how.asking.message, despite=how.despite),
        )
        _carry_out(client, tenant, edit, how)


@taking
def move(tenant: TenantName, rule: RuleName, place: PlaceOptions, how: Carrying) -> None:
    """Move a rule to another place, after showing what that changes. It keeps its counts."""
    if not place.is_said:
        place = replace(place, last=True)
    with service(how.url) as client:
        seen, moved, etag = _read(client, tenant, rule)
        others = [each for each in seen.acl.rules if each.id != moved.id]
        index = place.index([each.id for each in others])
        before = others[index].id if index < len(others) else None
        edit = Edit(
            seen,
            [*others[:index], moved, *others[index:]],
            lambda: client.acls.move_rule(
                tenant, rule, before=before, etag=etag, comment=how.asking.message, despite=how.despite
            ),
        )
        _carry_out(client, tenant, edit, how)


@taking
def delete(tenant: TenantName, rule: RuleName, how: Carrying) -> None:
    """Delete a rule, after showing what that changes, and wait until it is in force."""
    with service(how.url) as client:
        seen, old, etag = _read(client, tenant, rule)
        edit = Edit(
            seen,
            [each for each in seen.acl.rules if each.id != old.id],
            lambda: client.acls.delete_rule(tenant, rule, etag=etag, comment=how.asking.message, despite=how.despite),
        )
        _carry_out(client, tenant, edit, how)


def _read(client: Client, tenant: str, name: str) -> tuple[AclSeen, Rule, str]:
    """Return a list, one rule of it, and that rule's ETag.

    Raises NotFound, and Stale if the rule changed between the two reads.
    """
    read, seen = client.acls.read_rule(tenant, name), client.acls.read(tenant)
    if read.rule not in seen.acl.rules:
        raise Stale(f"rule '{name}' was changed just now: run it again")
    return seen, read.rule, read.etag


def _seen_for(client: Client, tenant: str, rule: Rule) -> AclSeen:
    """Return the list with the groups of endpoints that a rule names.

    Raises NotFound for an endpoint that there is not.
    """
    seen = client.acls.read(tenant)
    missing = {*rule.source.groups, *rule.destination.groups} - seen.acl.groups.keys()
    named = {group: name for group in missing if (name := endpoint_of_group(group)) is not None}
    if not named:
        return seen
    known = {each.name: each for each in client.tenants.read_own_endpoints(tenant)}
    groups = dict(seen.acl.groups)
    for group, name in named.items():
        if name not in known:
            side = "source" if group in rule.source.groups else "destination"
            told = f"'{name}' is no address, and {tenant} has no endpoint of that name"
            raise NotFound(told, place=f"--{side}")
        groups[group] = AddressGroup(GroupName(group), tuple(map(Prefix.parse, known[name].prefixes)))
    return replace(seen, acl=replace(seen.acl, groups=groups))


def _suggested_index(seen: AclSeen, rule: Rule) -> int:
    """The index that is suggested for a new rule, which is said beside the result."""
    try:
        found = suggest_place(seen.acl, rule)
    except KeyError as error:
        raise NotFound(f"the list has no group {error}", place="--source") from None
    if found.before is not None:
        remark(f"it goes before rule '{found.before}', which decides its packets otherwise now")
    if found.exceptions:
        more = len(found.exceptions) - _NAMED
        names = ", ".join(found.exceptions[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        remark(f"some of its packets are still denied before it, by {names}: --before puts it elsewhere")
    return found.position


def _carry_out(client: Client, tenant: str, edit: Edit, how: Carrying) -> None:
    """Show what an edit does, ask, write it, and follow it.

    The write names the rule's ETag: what others do to other rules meanwhile is kept. Raises Stale where they changed
    this one.
    """
    how.asking.check()
    with naming_rules(edit.rules):
        wanted = replace(edit.seen.acl, rules=tuple(edit.rules))
    proposal = propose(client, tenant, wanted, edit.seen.version)
    if not is_agreed(proposal, how.asking, f"Change the list of {tenant}?", how.as_json):
        return
    try:
        written = edit.write()
    except Stale:
        raise Stale("the rule was changed while you looked at this: nothing was written; run it again") from None
    except NotFound as error:
        raise NotFound(f"{error.reason}: it was there a moment ago, nothing was written; run it again") from None
    follow(client, tenant, written, how.waiting, as_json=how.as_json)

"""`aclflow group`: address groups of a tenant's list, at the service."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import MOST_SHOWN, ask_to_drop
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, GroupName, OfTenant, Url, prefix_of, taking
from orchestrator.cli.proposals import say_proposal
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json
from orchestrator.client import Client, Written
from orchestrator.errors import Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import AddressGroup
from orchestrator.policy.model import GroupName as Name

_TRIES = 5
"""How often a group is written again after somebody changed other things of the list."""
Members = Annotated[list[str] | None, typer.Argument(metavar="[PREFIX]...", help="Such as 192.0.2.0/24.")]
KnownMembers = Annotated[
    list[str], typer.Argument(metavar="PREFIX...", help="Members of it.", autocompletion=complete.members)
]
SomeMembers = Annotated[list[str], typer.Argument(metavar="PREFIX...", help="Such as 192.0.2.0/24.")]


@taking
def list_all(of: OfTenant, shown: Shown, url: Url = None) -> None:
    """List the address groups, with their sizes and the rules that name them."""
    with service(url) as client:
        found = list(client.groups.read_all(of.tenant))
    rows = ((one.name, one.members, " ".join(one.rules) or "-", one.description) for one in found)
    shown.say(found, ("group", "members", "rules", "description"), rows)


@taking
def show(of: OfTenant, group: GroupName, url: Url = None, as_json: AsJson = False) -> None:
    """Show the members of a group, one a line."""
    with service(url) as client:
        found, members = (
            client.groups.read(of.tenant, group),
            list(map(str, client.groups.read_members(of.tenant, group))),
        )
    if as_json:
        say_json({**asdict(found), "members": members})
    else:
        for member in members:
            say(member)


@taking
def put(
    of: OfTenant,
    group: GroupName,
    members: Members = None,
    description: Annotated[str, typer.Option("--description", help="A description for people.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop members that are not named, without asking.")] = False,
    url: Url = None,
) -> None:
    """Make a group of these members and no others, whether there was one or not.

    Members that it loses are shown, and you are asked before they are dropped; elsewhere than on a terminal say --yes.
    """
    wanted = AddressGroup(Name(group), _read_prefixes(members or []), description)
    with service(url) as client:
        written = _replace_group(client, of.tenant, wanted, yes=yes)
    _say_written(of.tenant, group, written)


def _replace_group(client: Client, tenant: str, wanted: AddressGroup, *, yes: bool) -> Written:
    """Write a group, in the place of the one that was shown.

    Raises Stale where somebody changed that meanwhile.
    """
    seen = client.acls.read(tenant)
    shown = seen.acl.groups.get(wanted.name)
    lost = [each for each in shown.prefixes if each not in {*wanted.prefixes}] if shown is not None else []
    ask_to_drop([str(each) for each in lost], f"Drop these members of group {wanted.name}?", yes=yes, most=MOST_SHOWN)
    for _ in range(_TRIES):
        try:
            return client.groups.put(tenant, wanted, etag=seen.etag)
        except Stale:
            seen = client.acls.read(tenant)
            if seen.acl.groups.get(wanted.name) != shown:
                break
    raise Stale("the group was changed while you looked at this: nothing was written; run it again")


@taking
def add(of: OfTenant, group: GroupName, members: SomeMembers, url: Url = None) -> None:
    """Add members; those that are there already stay."""
    prefixes = _read_prefixes(members)
    with service(url) as client:
        written = client.groups.change_members(of.tenant, group, add=prefixes)
    _say_written(of.tenant, group, written)


@taking
def remove(of: OfTenant, group: GroupName, members: KnownMembers, url: Url = None) -> None:
    """Remove members, all of them or, if one is not there, none."""
    prefixes = _read_prefixes(members)
    with service(url) as client:
        written = client.groups.change_members(of.tenant, group, remove=prefixes)
    _say_written(of.tenant, group, written)


@taking
def delete(of: OfTenant, group: GroupName, url: Url = None) -> None:
    """Delete a group that no rule names."""
    with service(url) as client:
        written = client.groups.delete(of.tenant, group)
    if not say_proposal(of.tenant, written):
        say(f"group {group} is gone with version {written.version}, generation {written.generation}")


def _read_prefixes(texts: list[str]) -> tuple[Prefix, ...]:
    return tuple(prefix_of(text, "PREFIX") for text in texts)


def _say_written(tenant: str, group: str, written: Written) -> None:
    if say_proposal(tenant, written):
        return
    what = f"version {written.version}" + ("" if written.changed else ", as it was")
    say(f"{tenant}, group {group}: {what}, generation {written.generation}")

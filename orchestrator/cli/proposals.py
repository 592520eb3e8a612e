"""`aclflow proposal` and `aclflow domain approval`: changes that another person must approve."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import as_it_was_shown
from orchestrator.cli.acl.servicelists import Waiting, follow
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.options import AsJson, DomainName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say, say_json
from orchestrator.client import Client, Written
from orchestrator.client.proposals import ProposedAbout
from orchestrator.client.records import Json
from orchestrator.errors import BadInput, NotFound
from orchestrator.wire.common import Approvals, Proposal

_DOMAIN = "domain/"
_SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
_FATES = {"permit": "permits", "deny": "denies", "stateless": "decides alone", "tracked": "decides by connections"}
"""The effect of a change on packets, in words."""
_MOST_SHOWN = 40
_SHORT = 8
"""Digits of a proposal's id that a table shows; so many that tell it from the others are enough."""

About = Annotated[
    str,
    typer.Argument(
        metavar="ABOUT", help="The tenant, or domain/NAME for a domain.", autocompletion=complete.proposed_about
    ),
]
ProposalId = Annotated[
    str, typer.Argument(metavar="PROPOSAL", help="Its id, or how it begins.", autocompletion=complete.proposals)
]


@taking
def list_all(about: About, shown: Shown, url: Url = None) -> None:
    """List the proposals about a tenant's list, or about a domain, newest first."""
    with service(url) as client:
        found = list(client.proposals.read_all(_read_about(about)))
    rows = (
        (one.id[:_SHORT], one.kind, _describe_state(one), one.by(), f"{one.created:%Y-%m-%d %H:%M}", one.comment)
        for one in found
    )
    shown.say(found, ("proposal", "kind", "state", "author", "created", "comment"), rows)


@taking
def show(about: About, proposal: ProposalId, url: Url = None, as_json: AsJson = False) -> None:
    """Show a proposal, and the rules and packets that it would change."""
    with service(url) as client:
        seen = _find_proposal(client, about, proposal)
        changes = client.proposals.read_changes(_read_about(about), seen.id) if seen.state == "open" else None
    if as_json:
        say_json({"proposal": seen, "changes": changes})
        return
    say(f"proposal {seen.id}: {seen.kind} of {about}, {_describe_state(seen)}", bold=True)
    maker = "" if seen.made_by is None else f", whose token {seen.made_by} made"
    say(f"by {seen.by()}{maker}, {seen.created:%Y-%m-%d %H:%M} UTC, from version {seen.base_version}")
    if seen.comment:
        say(f"comment: {seen.comment}")
    if seen.confirm_s is not None:
        say(f"once it is out it goes back after {seen.confirm_s} s unless it is confirmed")
    if seen.decided_by is not None:
        say(f"{seen.state} by {seen.decider()}" + (f": {seen.reason}" if seen.reason else ""))
    if changes is not None:
        _say_changes(changes)
        say(f"to approve it: aclflow proposal approve {about} {seen.id[:_SHORT]}")


@taking
def approve(about: About, proposal: ProposalId, waiting: Waiting, url: Url = None, as_json: AsJson = False) -> None:
    """Approve a proposal, which carries it out, and wait until it is in force.

    Another person than its author must do it. It is not carried out where the list has changed since it was proposed.
    """
    with service(url) as client:
        seen = _find_proposal(client, about, proposal)
        written = client.proposals.approve(_read_about(about), seen.id)
        if seen.tenant is not None:
            follow(client, seen.tenant, written, waiting, as_json=as_json)
        elif as_json:
            say_json({"domain": seen.domain, "version": written.version, "generation": written.generation})
        else:
            say(f"{seen.domain}: version {written.version}, generation {written.generation}")
        if seen.kind == "operator-rules" and waiting.wait:
            end_unless_enforced(
                wait_enforced(client, seen.domain, written.generation, waiting.timeout), waiting.timeout
            )


@taking
def reject(
    about: About,
    proposal: ProposalId,
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why.")] = "",
    url: Url = None,
) -> None:
    """Reject a proposal: nothing of it happens."""
    with service(url) as client:
        done = client.proposals.reject(_read_about(about), _find_proposal(client, about, proposal).id, reason=reason)
    say(f"proposal {done.id[:_SHORT]} is rejected")


@taking
def withdraw(about: About, proposal: ProposalId, url: Url = None) -> None:
    """Take a proposal of your own back."""
    with service(url) as client:
        done = client.proposals.withdraw(_read_about(about), _find_proposal(client, about, proposal).id)
    say(f"proposal {done.id[:_SHORT]} is withdrawn")


@taking
def show_approvals(domain: DomainName, url: Url = None, as_json: AsJson = False) -> None:
    """Show what of a domain goes out only when another person has approved it."""
    with service(url) as client:
        found = client.proposals.read_approvals(domain)
    if as_json:
        say_json(found)
    else:
        say(_approvals_text(domain, found))


@taking
def set_approvals(
    domain: DomainName,
    operator_rules: Annotated[
        bool | None,
        typer.Option("--operator-rules/--no-operator-rules", help="Its operator rules, and how replies get back in."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="TENANT", help="And this tenant's list.", autocompletion=complete.tenants),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="TENANT", help="No longer this tenant's list.", autocompletion=complete.tenants
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Set which changes of a domain need the approval of another person.

    A change by which less needs it must be approved, too.
    """
    with service(url) as client:
        etag = f'"{client.domains.read(domain).version}"'
        before = client.proposals.read_approvals(domain)
        tenants = {*before.tenants, *(add or ())} - {*(remove or ())}
        rules_too = before.operator_rules if operator_rules is None else operator_rules
        with as_it_was_shown("the domain was changed meanwhile"):
            written = client.proposals.set_approvals(
                domain, operator_rules=rules_too, tenants=sorted(tenants), etag=etag
            )
        if not say_proposal(f"{_DOMAIN}{domain}", written):
            say(_approvals_text(domain, client.proposals.read_approvals(domain)))


def say_proposal(about: str, written: Written) -> bool:
    """Say of a change that it was proposed, if it was; return whether."""
    if written.proposal is None:
        return False
    name = written.proposal.id[:_SHORT]
    say(f"{about}: nothing has changed yet: another person must approve proposal {name}")
    remark(f"aclflow proposal show {about} {name}")
    return True


def _approvals_text(domain: str, found: Approvals) -> str:
    named = (["the operator rules"] if found.operator_rules else []) + [f"the list of {one}" for one in found.tenants]
    return f"{domain}: another person must approve changes of: {', '.join(named) or 'nothing'}"


def _read_about(about: str) -> ProposedAbout:
    if about.startswith(_DOMAIN):
        return ProposedAbout(domain=about.removeprefix(_DOMAIN))
    return ProposedAbout(tenant=about)


def _find_proposal(client: Client, about: str, begins: str) -> Proposal:
    """The one proposal whose id begins so. Raises NotFound, and BadInput for several."""
    found = [one for one in client.proposals.read_all(_read_about(about)) if one.id.startswith(begins)]
    if not found:
        raise NotFound(f"there is no proposal '{begins}' about {about}", place="PROPOSAL")
    if len(found) > 1:
        raise BadInput(f"{len(found)} proposals begin so: say more of the id", place="PROPOSAL")
    return found[0]


def _describe_state(seen: Proposal) -> str:
    if seen.state != "open":
        return seen.state
    return "open, but there is a newer version" if seen.has_moved else f"open until {seen.expires:%Y-%m-%d %H:%M} UTC"


def _say_changes(changes: Json) -> None:
    if changes["approvals"] is not None:
        wanted = changes["approvals"]
        say(f"  operator rules: {'yes' if wanted['operator_rules'] else 'no'}")
        say(f"  lists of: {', '.join(wanted['tenants']) or 'no tenant'}")
        return
    for each in changes["rules"][:_MOST_SHOWN]:
        say(f"  {_SIGNS[each['kind']]} {each['id']}  {each['after'] or each['before']}")
    for name in changes["groups"]:
        say(f"  ~ group {name}")
    for way in changes["defaults"]:
        say(f"  ~ {way} default")
    if changes["packets"] is None:
        say("  the packets are too different to tell")
    for each in (changes["packets"] or [])[:_MOST_SHOWN]:
        say(f"  {_FATES[each['becomes']]} {each['direction']} {each['summary']}")
    for each in changes["left"][:_MOST_SHOWN]:
        was = "denied" if each["becomes"] == "permit" else "permitted"
        say(f"  no longer {was} for every tenant: {each['direction']} {each['summary']}")

"""`aclflow domain invite` and its neighbours: the tokens with which machines enrol."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.names import DomainName
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name in the domain's cloud.")]


@taking
def invite(
    domain: DomainName,
    lasts: Annotated[int, typer.Option("--lasts", min=1, help="How long it may be used, in seconds.")] = 3600,
    name: Annotated[str | None, typer.Option("--name", help="Only an enforcer of this name may use it.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only this kind: openflow, nftables, iptables, queue, switch.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="With --kind openflow: only for this switch; may be repeated.", autocompletion=complete.hosts
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a one-time token for an enforcer to enrol with. It is shown only now.

    Of a service that speaks TLS it carries the fingerprint of the service's authority: whoever has the token knows
    whom to believe.
    """
    with service(url) as client:
        token = client.enrolment.invite(domain, lasts_s=lasts, name=name, kind=kind, hosts=host or ())
    if as_json:
        say_json({"domain": domain, "token": token, "name": name, "kind": kind, "hosts": host or []})
    else:
        say(token)


@taking
def invite_group(
    domain: DomainName,
    group: GroupName,
    kind: Annotated[
        str, typer.Option("--kind", help="The kind of the machines: nftables, iptables, queue.")
    ] = "nftables",
    lasts: Annotated[int, typer.Option("--lasts", min=1, help="How long it may be used, in seconds.")] = 86400,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token that the machines of a group enrol with.

    It is for the user data that they share, and is shown only now. Each instance is admitted once, and only if the
    domain's cloud has it in the group with the address that it comes from.
    """
    with service(url) as client:
        made = client.enrolment.invite_group(domain, group, kind=kind, lasts_s=lasts)
    if as_json:
        expires = made.expires.isoformat()
        say_json({"id": made.id, "domain": domain, "group": group, "token": made.token, "expires": expires})
    else:
        say(made.token)


@taking
def list_groups(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List the tokens of groups that still hold, without their secrets."""
    with service(url) as client:
        rows = [
            (each.id, each.group, each.kind, each.expires.isoformat())
            for each in client.enrolment.read_group_tokens(domain)
        ]
    columns = ("id", "group", "kind", "expires")
    shown.say([dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


@taking
def remove_group(
    domain: DomainName,
    number: Annotated[
        int,
        typer.Argument(
            metavar="ID",
            min=0,
            help="The token's number; see `aclflow domain group list`.",
            autocompletion=complete.group_tokens,
        ),
    ],
    url: Url = None,
) -> None:
    """Make the token of a group invalid. Machines that were admitted with it stay."""
    with service(url) as client:
        client.enrolment.remove_group_token(domain, number)
    say(f"the token {number} admits nobody any more")

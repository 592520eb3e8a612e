"""`aclflow acl draft`: drafts that members of a tenant show each other."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.convert import NATIVE
from orchestrator.cli.acl.proposal import propose, say_proposal
from orchestrator.cli.connection import service
from orchestrator.cli.files import File, Output, read_file, whole, write_output
from orchestrator.cli.options import AsJson, Reading, TenantName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say, say_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import TakenFrom

DraftName = Annotated[str, typer.Argument(metavar="DRAFT", help="The draft's id.", autocompletion=complete.drafts)]


@taking
def share(
    tenant: TenantName,
    name: File,
    reading: Reading,
    message: Annotated[str, typer.Option("--message", "-m", help="A note on what others should look at.")] = "",
    days: Annotated[int, typer.Option("--days", min=1, max=30, help="For how long it is kept.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Share a file as a draft with the tenant's members, for some days.

    Nothing is committed. Prints the draft's id, and its page in the console.
    """
    read = read_file(name, reading)
    acl = whole(read, reading)
    origin = read.imported.taken_from
    with service(reading.url) as client:
        base = origin.version if origin is not None and origin.tenant == tenant else client.acls.read(tenant).version
        shared = client.drafts.share(tenant, acl, base=base, message=message, days=days)
    if as_json:
        say_json(shared)
        return
    say(shared.id)
    remark(f"in the console: /project/{tenant}/draft?id={shared.id}, until {shared.expires:%Y-%m-%d %H:%M} UTC")


@taking
def list_all(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """List the drafts that a tenant's members share, newest first."""
    with service(url) as client:
        found = list(client.drafts.read_all(tenant))
    shown.say(
        found,
        ("draft", "author", "created", "until", "version", "message"),
        (
            (
                one.id,
                one.by(),
                f"{one.created:%Y-%m-%d %H:%M}",
                f"{one.expires:%Y-%m-%d}",
                one.base_version,
                one.message,
            )
            for one in found
        ),
    )


@taking
def show(tenant: TenantName, draft: DraftName, output: Output = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show what a draft would change now, or write it to a file.

    Changes that were made since the draft are kept. The file can be edited further.
    """
    with service(url) as client:
        shared, acl = client.drafts.read(tenant, draft)
        if output is not None:
            write_output(write(acl, NATIVE, TakenFrom(tenant, shared.base_version)).text, output)
            return
        proposal = propose(client, tenant, acl, shared.base_version)
    if as_json:
        say_json(
            {
                **proposal.document(),
                "author": shared.author,
                "author_name": shared.author_name,
                "message": shared.message,
            }
        )
        return
    say(f"{shared.message or 'a draft'}, by {shared.by()}", bold=True)
    say_proposal(proposal)


@taking
def delete(tenant: TenantName, draft: DraftName, url: Url = None) -> None:
    """Stop sharing a draft."""
    with service(url) as client:
        client.drafts.delete(tenant, draft)
    say(f"{draft} is shared no more")

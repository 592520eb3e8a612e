"""`aclflow acl waiver`: findings on a tenant's list that somebody accepts until a day."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, TenantName, Url, end_of, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say, say_json
from orchestrator.policy.findings import Kind
from orchestrator.wire.lists import Waiver


@taking
def list_all(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """List the waivers of a tenant's list: who waived what, until when and why."""
    with service(url) as client:
        found = client.waivers.read_all(tenant)
    now = dt.datetime.now(dt.UTC)
    shown.say(
        found,
        ("waiver", "kind", "about", "author", "ends", "reason"),
        ((one.id, one.kind, _name_subject(one), one.by(), _spell_end(one, now), one.reason) for one in found),
    )


@taking
def add(
    tenant: TenantName,
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="The finding's kind, see `aclflow acl check`.")],
    about: Annotated[
        list[str],
        typer.Argument(
            metavar="RULE...", help="The finding's rule; both of a conflict; @group.", autocompletion=complete.rules
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why it may stay so.")],
    ends: Annotated[str, typer.Option("--ends", help="When it counts again: in 4w, 2030-01-31.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Waive a finding until a day: it is not shown and does not count.

    The list stays as it is. An older waiver of the same finding is replaced, and told.
    """
    rules = [name for name in about if not name.startswith("@")]
    group = next((name[1:] for name in about if name.startswith("@")), None)
    until = end_of(ends, "--ends")
    with service(url) as client:
        made = client.waivers.add(tenant, kind.value, rules, group=group, reason=reason, ends=until)
    if as_json:
        say_json(made)
    else:
        say(f"waiver {made.id}: {made.kind} of {_name_subject(made)}, until {made.ends:%Y-%m-%d %H:%M} UTC")
        if made.replaced is not None:
            old = made.replaced
            remark(f"in the place of waiver {old.id} by {old.by()}, until {old.ends:%Y-%m-%d %H:%M} UTC: {old.reason}")


@taking
def delete(
    tenant: TenantName,
    waiver: Annotated[
        int, typer.Argument(metavar="WAIVER", min=1, help="Its number.", autocompletion=complete.waivers)
    ],
    url: Url = None,
) -> None:
    """Take a waiver back: the finding counts again."""
    with service(url) as client:
        client.waivers.remove(tenant, waiver)
    say(f"waiver {waiver} is gone")


def _name_subject(waiver: Waiver) -> str:
    return f"@{waiver.group}" if waiver.group is not None else ", ".join(waiver.rules)


def _spell_end(waiver: Waiver, now: dt.datetime) -> str:
    return f"{waiver.ends:%Y-%m-%d %H:%M}" + (" (over)" if waiver.ends <= now else "")

"""`aclflow tenant`: tenants and the prefixes they own."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.names import TenantName
from orchestrator.cli.options import AsJson, Url, prefix_of, taking
from orchestrator.cli.packets import PacketOptions
from orchestrator.cli.terminal import say, say_json, say_table
from orchestrator.client import Trace
from orchestrator.policy.describe import packet_text
from orchestrator.wire.tenants import Tenant as TenantSeen

_ANSWER_IS_NO = 1

PrefixText = Annotated[str, typer.Argument(metavar="PREFIX", help="Such as 198.51.100.0/24 or 2001:db8::/32.")]


@taking
def create(
    tenant: TenantName,
    domain: Annotated[str, typer.Option("--domain", help="The security domain that holds its rules.")],
    name: Annotated[str, typer.Option("--name", help="What people call it.")] = "",
    prefix: Annotated[list[str] | None, typer.Option("--prefix", help="What it owns.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a tenant."""
    prefixes = [prefix_of(text, "--prefix") for text in prefix or ()]
    with service(url) as client:
        made = client.create_tenant(tenant, domain=domain, name=name, prefixes=prefixes)
    if as_json:
        say_json(made)
    else:
        say(f"tenant {made.id} of domain {made.domain}, number {made.number}: {_owned(made)}")


@taking
def list_all(url: Url = None, as_json: AsJson = False) -> None:
    """List the tenants that you may see."""
    with service(url) as client:
        found = list(client.tenants())
    if as_json:
        say_json(found)
    else:
        rows = ((one.id, one.name, one.domain, one.number, _owned(one)) for one in found)
        say_table(("tenant", "name", "domain", "number", "prefixes"), rows)


@taking
def delete(tenant: TenantName, url: Url = None) -> None:
    """Delete a tenant, its prefixes and its list."""
    with service(url) as client:
        generation = client.delete_tenant(tenant)
    say(f"tenant {tenant} is gone with generation {generation}")


@taking
def trace(tenant: TenantName, packet_options: PacketOptions, url: Url = None, as_json: AsJson = False) -> None:
    """Show what decides a packet of a tenant, as enforced.

    For administrators all lists are asked, for a tenant only its own and the operator's. Ends with 1 if it is denied.
    """
    packet = packet_options.packet()
    with service(url) as client:
        found = client.trace(tenant, packet)
    if as_json:
        say_json(found)
    else:
        say(packet_text(packet))
        _say_trace(found)
    if found.action != "permit":
        raise typer.Exit(_ANSWER_IS_NO)


@taking
def add_prefix(tenant: TenantName, prefix: PrefixText, url: Url = None) -> None:
    """Give a tenant a prefix."""
    with service(url) as client:
        written = client.add_prefix(tenant, prefix_of(prefix, "PREFIX"))
    say(f"{tenant} owns {prefix} from generation {written.generation} on")


@taking
def remove_prefix(tenant: TenantName, prefix: PrefixText, url: Url = None) -> None:
    """Take a prefix from a tenant."""
    with service(url) as client:
        written = client.remove_prefix(tenant, prefix_of(prefix, "PREFIX"))
    say(f"{tenant} does not own {prefix} from generation {written.generation} on")


def _owned(tenant: TenantSeen) -> str:
    return ", ".join(tenant.prefixes) or "no prefixes"


def _say_trace(found: Trace) -> None:
    for step in found.steps:
        asked = f"{step.tenant}, {step.direction}" if step.tenant else "operator"
        by = f"rule '{step.rule}'" if step.rule else "the default"
        say(f"  {asked}: {step.action}, by {by}")
    say(found.action, colour="green" if found.action == "permit" else "red", bold=True)

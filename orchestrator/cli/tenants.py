"""`aclflow tenant`: tenants, the prefixes they own, and what their lists may cost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.names import TenantName
from orchestrator.cli.options import AsJson, Url, prefix_of, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json
from orchestrator.errors import BadInput, Missing
from orchestrator.wire.tenants import MOST_AT_ONCE, Limits, TenantToCreate
from orchestrator.wire.tenants import Tenant as TenantSeen

PrefixText = Annotated[str, typer.Argument(metavar="PREFIX", help="Such as 198.51.100.0/24 or 2001:db8::/32.")]
Most = Annotated[str | None, typer.Option(metavar="NUMBER|none", help="At most so many; none: as many as there are.")]


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
def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of NAME PREFIX...; - for standard input.")],
    domain: Annotated[str, typer.Option("--domain", help="The security domain that holds their rules.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make the tenants of a file, all at once.

    A line is the name of a tenant and the prefixes that it owns; # begins a comment. Up to 1,000 tenants are made in
    one change of the domain, all of them or none; more take one change for each 1,000.
    """
    tenants = _read_tenants(*_opened(file))
    with service(url) as client:
        pages = range(0, len(tenants), MOST_AT_ONCE)
        made = [client.create_tenants(domain, tenants[first : first + MOST_AT_ONCE]) for first in pages]
    if as_json:
        say_json(made)
    else:
        say(f"{len(tenants)} tenants of domain {domain} are there from generation {made[-1].generation} on")


@taking
def list_all(shown: Shown, url: Url = None) -> None:
    """List the tenants that you may see."""
    with service(url) as client:
        found = list(client.tenants())
    rows = ((one.id, one.name, one.domain, one.number, _owned(one)) for one in found)
    shown.say(found, ("tenant", "name", "domain", "number", "prefixes"), rows)


@taking
def delete(tenant: TenantName, url: Url = None) -> None:
    """Delete a tenant, its prefixes and its list."""
    with service(url) as client:
        generation = client.delete_tenant(tenant)
    say(f"tenant {tenant} is gone with generation {generation}")


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


@taking
def quota(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """Show what a tenant's list may cost, and what it does."""
    with service(url) as client:
        found = client.quota(tenant)
    rows = (
        (name, "no limit" if limit is None else limit, "?" if used is None else used)
        for name, limit, used in (
            ("rules", found.rules, found.used.rules),
            ("flow entries", found.flows, found.used.flows),
        )
    )
    shown.say(found, ("unit", "quota", "used"), rows)


@taking
def set_quota(tenant: TenantName, rules: Most = None, flows: Most = None, url: Url = None) -> None:
    """Say what a tenant's list may cost: rules, and flow entries on a switch. What is not named stays."""
    with service(url) as client:
        now = client.quota(tenant)
        client.set_quota(tenant, Limits(_most(rules, now.rules, "--rules"), _most(flows, now.flows, "--flows")))
        found = client.quota(tenant)
    words = ("no limit" if each is None else each for each in (found.rules, found.flows))
    say("{}: rules {}, flow entries {}".format(tenant, *words))


def _opened(file: str) -> tuple[str, str]:
    """Read a file of tenants: what to call it, and its text."""
    if file == "-":
        return "standard input", sys.stdin.read()
    try:
        return file, Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Missing(f"{file} cannot be read: {error}", place=file) from None


def _read_tenants(shown: str, text: str) -> list[TenantToCreate]:
    """Read lines of a tenant and its prefixes. Raises BadInput with the line."""
    found: dict[str, TenantToCreate] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{shown}:{number}"
        if words[0] in found:
            raise BadInput(f"tenant '{words[0]}' stands there twice", place=place)
        found[words[0]] = TenantToCreate(words[0], "", tuple(str(prefix_of(each, place)) for each in words[1:]))
    if not found:
        raise BadInput("there is no tenant in it", place=shown)
    return list(found.values())


def _owned(tenant: TenantSeen) -> str:
    return ", ".join(tenant.prefixes) or "no prefixes"


def _most(text: str | None, now: int | None, option: str) -> int | None:
    """The limit that is meant: a number, none, or, where nothing was said, what it is now."""
    if text is None:
        return now
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise BadInput(f"'{text}' is neither a number nor none", place=option)
    return int(text)

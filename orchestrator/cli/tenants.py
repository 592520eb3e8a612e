"""`aclflow tenant`: tenants, the prefixes they own, and what their lists may cost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import MOST_SHOWN, as_it_was_shown, end_unless, is_sure, say_rest
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, TenantName, Url, prefix_of, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json, several
from orchestrator.client import Client
from orchestrator.errors import BadInput, Conflict, Missing, Stale
from orchestrator.policy.ruletext import rule_text
from orchestrator.wire.tenants import MOST_AT_ONCE, Limits, TenantToCreate, Used
from orchestrator.wire.tenants import Tenant as TenantSeen

PrefixText = Annotated[str, typer.Argument(metavar="PREFIX", help="Such as 198.51.100.0/24 or 2001:db8::/32.")]
Most = Annotated[str | None, typer.Option(metavar="NUMBER|none", help="At most so many; none: as many as there are.")]


@taking
def create(
    tenant: TenantName,
    domain: Annotated[
        str, typer.Option("--domain", help="The security domain that holds its rules.", autocompletion=complete.domains)
    ],
    name: Annotated[str, typer.Option("--name", help="A name for people.")] = "",
    prefix: Annotated[
        list[str] | None, typer.Option("--prefix", help="A prefix that it owns; may be repeated.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a tenant."""
    prefixes = [prefix_of(text, "--prefix") for text in prefix or ()]
    with service(url) as client:
        made = client.tenants.create(tenant, domain=domain, name=name, prefixes=prefixes)
    if as_json:
        say_json(made)
    else:
        say(f"tenant {made.id} of domain {made.domain}, number {made.number}: {_prefixes_text(made)}")


@taking
def import_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of NAME PREFIX...; - for standard input.")],
    domain: Annotated[
        str,
        typer.Option("--domain", help="The security domain that holds their rules.", autocompletion=complete.domains),
    ],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make the tenants of a file, all at once.

    A line is the name of a tenant and the prefixes that it owns; # begins a comment. Up to 1,000 tenants are made in
    one change of the domain, all of them or none; more take one change for each 1,000.
    """
    tenants = _read_tenants(*_read_lines(file))
    with service(url) as client:
        pages = range(0, len(tenants), MOST_AT_ONCE)
        made = [client.tenants.create_many(domain, tenants[first : first + MOST_AT_ONCE]) for first in pages]
    if as_json:
        say_json(made)
    else:
        say(f"{len(tenants)} tenants of domain {domain} are there from generation {made[-1].generation} on")


@taking
def list_all(shown: Shown, url: Url = None) -> None:
    """List the tenants that you may see."""
    with service(url) as client:
        found = list(client.tenants.read_all())
    rows = ((one.id, one.name, one.domain, one.number, _prefixes_text(one)) for one in found)
    shown.say(found, ("tenant", "name", "domain", "number", "prefixes"), rows)


@taking
def delete(
    tenant: TenantName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete it without asking.")] = False,
    url: Url = None,
) -> None:
    """Delete a tenant, its prefixes and its list, after showing what goes.

    Its endpoints must be deleted before. Elsewhere than on a terminal say --yes.
    """
    with service(url) as client:
        seen = client.tenants.read(tenant)
        _say_what_goes(client, seen)
        end_unless(is_sure(f"Delete {tenant}?", yes=yes))
        moved = Stale("the tenant was changed meanwhile: nothing was deleted; run it again")
        if client.tenants.read(tenant).in_force.version != seen.in_force.version:
            raise moved
        try:
            generation = client.tenants.delete(tenant, etag=f'"{seen.version}"')
        except Stale:
            raise moved from None
    say(f"tenant {tenant} is gone with generation {generation}")


def _say_what_goes(client: Client, seen: TenantSeen) -> None:
    """Show the rules that go with a tenant. Raises Conflict where it has endpoints."""
    endpoints = [each.name for each in client.tenants.read_own_endpoints(seen.id)]
    if endpoints:
        named = ", ".join(endpoints[:MOST_SHOWN])
        first = f"first `aclflow domain endpoint remove {seen.domain} {endpoints[0]}`"
        raise Conflict(f"the tenant still has endpoints ({named}): {first}")
    rules = client.acls.read(seen.id).acl.rules
    number = several(len(rules), "rule")
    say(f"{seen.id} of domain {seen.domain} owns {_prefixes_text(seen)}; with it go {number}, its history and tokens")
    for rule in rules[:MOST_SHOWN]:
        say(f"  - {rule.id}  {rule_text(rule)}", colour="yellow")
    say_rest(len(rules))


@taking
def show(tenant: TenantName, url: Url = None, as_json: AsJson = False) -> None:
    """Show a tenant: its prefixes, its quota, and whether its list is in force."""
    with service(url) as client:
        found = client.tenants.read(tenant)
    if as_json:
        say_json(found)
        return
    say(f"tenant {found.id}" + (f" ({found.name})" if found.name else ""), bold=True)
    say(f"domain {found.domain}, number {found.number}, since {found.created:%Y-%m-%d %H:%M} UTC")
    say(f"owns {_prefixes_text(found)}")
    say(f"return traffic {found.return_traffic}")
    for unit, limit, used in _shares(found.quota, found.used):
        say(f"{unit}: {used} of {limit}")
    say(f"list: version {found.in_force.version} is {found.in_force.text()}")
    if found.unconfirmed is not None:
        waiting = found.unconfirmed
        say(
            f"version {waiting.version} goes back at {waiting.until:%H:%M:%S} UTC, unless: aclflow acl confirm {tenant}"
        )


@taking
def rename(
    tenant: TenantName,
    name: Annotated[str, typer.Option("--name", help="A name for people.")],
    url: Url = None,
) -> None:
    """Give a tenant another name for people; its id stays."""
    with service(url) as client:
        client.tenants.rename(tenant, name)
    say(f"tenant {tenant} is called {name}" if name else f"tenant {tenant} has no name for people")


@taking
def list_prefixes(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """List the prefixes that a tenant owns."""
    with service(url) as client:
        found = client.tenants.read(tenant).prefixes
    shown.say([*found], ("prefix",), ((each,) for each in found))


@taking
def add_prefix(tenant: TenantName, prefix: PrefixText, url: Url = None) -> None:
    """Give a tenant a prefix."""
    with service(url) as client:
        written = client.tenants.add_prefix(tenant, prefix_of(prefix, "PREFIX"))
    say(f"{tenant} owns {prefix} from generation {written.generation} on")


@taking
def delete_prefix(
    tenant: TenantName,
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="One of the tenant's.", autocompletion=complete.prefixes)
    ],
    url: Url = None,
) -> None:
    """Take a prefix from a tenant."""
    with service(url) as client:
        written = client.tenants.remove_prefix(tenant, prefix_of(prefix, "PREFIX"))
    say(f"{tenant} does not own {prefix} from generation {written.generation} on")


@taking
def list_endpoints(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """List a tenant's endpoints: the names that its rules, traces and expectations may use."""
    with service(url) as client:
        found = list(client.tenants.read_own_endpoints(tenant))
    shown.say(found, ("endpoint", "prefixes"), ((one.name, ", ".join(one.prefixes)) for one in found))


@taking
def show_quota(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """Show a tenant's limits, and how much of each is used."""
    with service(url) as client:
        found = client.tenants.read_quota(tenant)
    shown.say(found, ("unit", "quota", "used"), _shares(found, found.used))


@taking
def set_quota(
    tenant: TenantName,
    rules: Most = None,
    flows: Most = None,
    stored_bytes: Most = None,
    versions: Most = None,
    streams: Most = None,
    analysis_seconds: Most = None,
    url: Url = None,
) -> None:
    """Set the limits of a tenant. Limits that are not named stay.

    --rules and --flows limit its list: rules, and flow entries on a switch. Versions that take up more than
    --stored-bytes, or are more than --versions, are forgotten, the oldest first. At one service, members have --streams
    of events open at most, and the list is looked at for --analysis-seconds of a minute.
    """
    with service(url) as client:
        seen = client.tenants.read(tenant)
        now = seen.quota
        limits = Limits(
            _most(rules, now.rules, "--rules"),
            _most(flows, now.flows, "--flows"),
            _most(stored_bytes, now.stored_bytes, "--stored-bytes"),
            _most(versions, now.versions, "--versions"),
            _most(streams, now.streams, "--streams"),
            _most(analysis_seconds, now.analysis_seconds, "--analysis-seconds"),
        )
        with as_it_was_shown("the tenant was changed meanwhile"):
            client.tenants.set_quota(tenant, limits, etag=f'"{seen.version}"')
        found = client.tenants.read_quota(tenant)
    words = ("no limit" if each is None else each for each in (found.rules, found.flows))
    others = (
        ("stored bytes", found.stored_bytes),
        ("versions", found.versions),
        ("streams", found.streams),
        ("analysis seconds", found.analysis_seconds),
    )
    more = "".join([f", {name} {most}" for name, most in others if most is not None])
    say("{}: rules {}, flow entries {}{}".format(tenant, *words, more))


def _shares(quota: Limits, used: Used) -> list[tuple[str, object, object]]:
    """List what there is a quota of: name, limit, use."""
    units = (
        ("rules", quota.rules, used.rules),
        ("flow entries", quota.flows, used.flows),
        ("stored bytes", quota.stored_bytes, used.stored_bytes),
        ("streams", quota.streams, used.streams),
        ("analysis seconds a minute", quota.analysis_seconds, used.analysis_seconds),
    )
    return [
        (name, "no limit" if limit is None else limit, "?" if count is None else count) for name, limit, count in units
    ]


def _read_lines(file: str) -> tuple[str, str]:
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


def _prefixes_text(tenant: TenantSeen) -> str:
    return ", ".join(tenant.prefixes) or "no prefixes"


def _most(text: str | None, now: int | None, option: str) -> int | None:
    """Return the limit that is meant: a number, none, or the present one.

    The last is meant where nothing was given.
    """
    if text is None:
        return now
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise BadInput(f"'{text}' is neither a number nor none", place=option)
    return int(text)

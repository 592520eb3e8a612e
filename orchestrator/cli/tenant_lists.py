"""`aclflow tenant quota`, `set-quota`, `compare`, `restore`, `blame`, `bisect`: a tenant's list over time and money."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.names import TenantName
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.packets import PacketOptions
from orchestrator.cli.terminal import at_work, say, say_json, say_table
from orchestrator.errors import BadInput
from orchestrator.policy.describe import change_text, packet_text
from orchestrator.policy.model import Direction
from orchestrator.wire.tenants import Limits

_ANSWER_IS_NO = 1

Version = Annotated[int, typer.Argument(min=0, help="A version of the list, see `aclflow acl versions`.")]
Way = Annotated[Direction, typer.Option("--way", help="Seen from the tenant: ingress is to it.")]
Most = Annotated[str | None, typer.Option(metavar="NUMBER|none", help="At most so many; none: as many as there are.")]


@taking
def quota(tenant: TenantName, url: Url = None, as_json: AsJson = False) -> None:
    """Show what a tenant's list may cost, and what it does."""
    with service(url) as client:
        found = client.quota(tenant)
    if as_json:
        say_json(found)
        return
    rows = (
        (name, "no limit" if limit is None else limit, "?" if used is None else used)
        for name, limit, used in (
            ("rules", found.rules, found.used.rules),
            ("flow entries", found.flows, found.used.flows),
        )
    )
    say_table(("unit", "quota", "used"), rows)


@taking
def set_quota(tenant: TenantName, rules: Most = None, flows: Most = None, url: Url = None) -> None:
    """Say what a tenant's list may cost: rules, and flow entries on a switch. What is not named stays."""
    with service(url) as client:
        now = client.quota(tenant)
        client.set_quota(tenant, Limits(_most(rules, now.rules, "--rules"), _most(flows, now.flows, "--flows")))
        found = client.quota(tenant)
    words = ("no limit" if each is None else each for each in (found.rules, found.flows))
    say("{}: rules {}, flow entries {}".format(tenant, *words))


@taking
def compare(
    tenant: TenantName,
    before: Version,
    after: Annotated[int | None, typer.Argument(min=0, help="Another; the current one by default.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show which packets fare otherwise since a version of the list. Ends with 1 if there are any."""
    with service(url) as client, at_work("comparing"):
        found = client.acl_difference(tenant, before, after)
    if as_json:
        say_json(found)
    else:
        for change in found["changes"]:
            say_change(change)
        if not found["changes"]:
            say(f"versions {found['before']} and {found['after']} decide every packet alike")
    if found["changes"]:
        raise typer.Exit(_ANSWER_IS_NO)


@taking
def restore(tenant: TenantName, version: Version, url: Url = None, as_json: AsJson = False) -> None:
    """Make a list again what it was at a version, as a new version, without rules whose time is over."""
    with service(url) as client:
        written, left_out = client.restore_acl(tenant, version)
    if as_json:
        say_json({"version": written.version, "generation": written.generation, "left_out": list(left_out)})
        return
    say(f"{tenant}: version {written.version} is as version {version} was, generation {written.generation}")
    if left_out:
        say(f"left out, for their time is over: {', '.join(left_out)}", colour="yellow")


@taking
def blame(
    tenant: TenantName,
    packet_options: PacketOptions,
    way: Way = Direction.INGRESS,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show since which version a list decides a packet as it does now."""
    packet = packet_options.packet()
    with service(url) as client, at_work("reading versions"):
        found = client.blame(tenant, packet, way)
    if as_json:
        say_json(found)
        return
    say(packet_text(packet))
    _say_verdict("now", found["now"])
    _say_verdict("since", found["after"])
    if found["before"] is not None:
        _say_verdict("before", found["before"])
    else:
        say("  every version that is kept says the same")


@taking
def bisect(
    tenant: TenantName,
    packet_options: PacketOptions,
    way: Way = Direction.INGRESS,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Find two neighbouring versions of a list that disagree about a packet, reading few of many.

    Ends with 1 where the oldest and the newest agree.
    """
    packet = packet_options.packet()
    with service(url) as client, at_work("reading versions"):
        found = client.bisect(tenant, packet, way)
    if as_json:
        say_json(found)
    else:
        say(packet_text(packet))
        for name in ("before", "after"):
            if found[name] is not None:
                _say_verdict(name, found[name])
        say(f"  {found['looked_at']} of {found['of']} versions were read")
    if found["before"] is None:
        raise typer.Exit(_ANSWER_IS_NO)


def say_change(change: Any) -> None:
    """A change of packets' fate, as the service tells it."""
    becomes, less = change["becomes"], (*change["less_before"], *change["less_after"])
    told = change_text(change["direction"], change["summary"], change["before"], change["after"], less)
    say(f"{'+' if becomes == 'permit' else '-'} {told}", colour="green" if becomes == "permit" else "red")


def _say_verdict(when: str, verdict: Any) -> None:
    by = f"rule '{verdict['rule']}'" if verdict["rule"] else "the default"
    say(f"  {when}: version {verdict['version']}: {verdict['action']}, by {by}")


def _most(text: str | None, now: int | None, option: str) -> int | None:
    """The limit that is meant: a number, none, or, where nothing was said, what it is now."""
    if text is None:
        return now
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise BadInput(f"'{text}' is neither a number nor none", place=option)
    return int(text)

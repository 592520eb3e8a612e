"""`aclflow spread`: how traffic is spread over firewalls, and how these are watched."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.acl.proposal import as_it_was_shown, ask_to_drop
from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import DomainName, RunDir, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, several
from orchestrator.client import Client
from orchestrator.client.spread import Carrier, Link, Sharing
from orchestrator.errors import BadInput, Missing, NotFound
from orchestrator.hosts.healthchecks import PortCheck
from orchestrator.hosts.ovs import RUN_DIR, LocalSwitch

_BUCKETS = 256
_NOT_SPREAD = '"0"'
"""The ETag of a domain whose traffic is not spread."""


@taking
def show(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """Show each firewall's share of a domain's traffic, and whether it is enforced.

    The spreading switch enforces it.
    """
    with service(url) as client:
        seen = client.spread.read(domain)
    columns = ("firewall", "state", "weight", "share", "carries", "left", "right")
    shown.say(asdict(seen), columns, map(_make_row, seen.firewalls))
    if not shown.is_for_people:
        return
    done = "enforced" if seen.enforced >= seen.generation else f"the switch is at {seen.enforced}"
    say(f"generation {seen.generation}, {done}{f'; {seen.trouble}' if seen.trouble else ''}")
    if seen.given_up:
        others = ", ".join(seen.carrying) or "nobody"
        say(f"the switch hears nothing of {', '.join(seen.given_up)}; the traffic goes through {others}")


@taking
def set_up(
    domain: DomainName,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='JSON: {"firewalls": [{"name", "number", "left": {"port", "mac"}, "right": {"port", "mac"}, '
            '"state", "weight"}], "stateful", "synchronised"}.',
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Drop firewalls that are not named, without asking.")
    ] = False,
    url: Url = None,
) -> None:
    """Spread a domain's traffic over the firewalls of a file and no others.

    A domain's fleet does this by itself. Firewalls that get no more traffic are shown, and you are asked; elsewhere
    than on a terminal say --yes.
    """
    carriers, stateful, synchronised = _read(file)
    with service(url) as client:
        etag = _agreed_etag(client, domain, {each.name for each in carriers}, yes=yes)
        with as_it_was_shown("the spreading was changed meanwhile"):
            generation = client.spread.configure(
                domain, carriers, stateful=stateful, synchronised=synchronised, etag=etag
            )
    say(f"traffic of {domain} is spread over {several(len(carriers), 'firewall')} from generation {generation} on")


@taking
def watch(
    bridge: Annotated[str, typer.Argument(metavar="BRIDGE", help="The spreading switch, a bridge of this machine.")],
    shown: Shown,
    port: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PORT]...", help="Ports that lead to firewalls; without any, all that buckets watch."),
    ] = None,
    run_dir: RunDir = RUN_DIR,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; status 1: a port is not asked.")] = False,
) -> None:
    """Have a spreading switch ask the firewalls behind its ports whether they are well.

    Safe to repeat. It asks every 10 ms, and passes over a firewall that answers nothing for 40 ms. The switch keeps the
    settings; new ports need them, too. Without them only a link that goes down is noticed.
    """
    switch = LocalSwitch(run_dir)
    before = switch.look_at_checks(bridge, port or ())
    if not before:
        raise NotFound(f"no bucket of the bridge '{bridge}' watches a port: spread over synchronised firewalls first")
    done = switch.check_firewalls(before, check=check)
    after = switch.look_at_checks(bridge, [each.port for each in before]) if done.changed and not check else before
    lacking = {each.port for each in before if not each.is_asked}
    rows = [
        (each.port, "yes" if each.is_asked else "no", each.status.get("state", "-"), _tell_change(each, lacking))
        for each in after
    ]
    document = [
        {"port": each.port, "asked": each.is_asked, "up": each.is_up, "changed": each.port in lacking} for each in after
    ]
    shown.say(document, ("port", "asked", "firewall", "done"), rows)
    if check and lacking:
        raise typer.Exit(ANSWER_IS_NO)


def _tell_change(now: PortCheck, lacking: Collection[str]) -> str:
    if now.port not in lacking:
        return ""
    return "asked from now on" if now.is_asked else "would be asked"


def _agreed_etag(client: Client, domain: str, kept: Collection[str], *, yes: bool) -> str:
    """Show the firewalls that lose their traffic, and ask.

    Returns the ETag of what was shown. Ends with 1 where the answer is no.
    """
    try:
        seen = client.spread.read(domain)
    except NotFound:
        return _NOT_SPREAD
    lost = [each.carrier.name for each in seen.firewalls if each.carrier.name not in kept]
    ask_to_drop(lost, "Send these firewalls no more traffic?", yes=yes)
    return seen.etag


def _read(file: Path) -> tuple[list[Carrier], bool, bool]:
    """Read a spread from a file.

    Raises Missing, and BadInput for a file that says something else.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(file)) from None
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", place=str(file)) from None
    try:
        carriers = list(_read_carriers(document["firewalls"]))
        return carriers, bool(document.get("stateful", False)), bool(document.get("synchronised", False))
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"does not describe firewalls: {error}", place=str(file)) from None


def _read_carriers(described: Iterable[dict[str, object]]) -> Iterable[Carrier]:
    for each in described:
        left, right = (Link(**each[side]) for side in ("left", "right"))  # type: ignore[arg-type]
        yield Carrier(**{**each, "left": left, "right": right})  # type: ignore[arg-type]


def _make_row(one: Sharing) -> tuple[str, ...]:
    carrier = one.carrier
    share, carries = f"{one.buckets / _BUCKETS:.1%}", "no" if one.given_up or not one.buckets else "yes"
    return (carrier.name, carrier.state, f"{carrier.weight:g}", share, carries, carrier.left.port, carrier.right.port)

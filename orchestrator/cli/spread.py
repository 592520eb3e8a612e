"""`aclflow spread`: how a domain's traffic is spread over its firewalls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.names import DomainName
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say
from orchestrator.client.spread import Carrier, Link, Sharing
from orchestrator.errors import BadInput, Missing

_BUCKETS = 256


@taking
def show(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """Show each firewall's share of a domain's traffic, and whether it is enforced.

    The spreading switch enforces it.
    """
    with service(url) as client:
        seen = client.spread(domain)
    columns = ("firewall", "state", "weight", "share", "left", "right")
    shown.say(asdict(seen), columns, map(_row, seen.firewalls))
    if not shown.is_for_people:
        return
    done = "enforced" if seen.enforced >= seen.generation else f"the switch is at {seen.enforced}"
    say(f"generation {seen.generation}, {done}{f'; {seen.trouble}' if seen.trouble else ''}")


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
    url: Url = None,
) -> None:
    """Spread a domain's traffic over the firewalls of a file and no others.

    A domain's fleet does this by itself.
    """
    carriers, stateful, synchronised = _read(file)
    with service(url) as client:
        generation = client.set_spread(domain, carriers, stateful=stateful, synchronised=synchronised)
    say(f"traffic of {domain} is spread over {len(carriers)} firewalls from generation {generation} on")


def _read(file: Path) -> tuple[list[Carrier], bool, bool]:
    """Raises Missing, and BadInput for a file that says something else."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(file)) from None
    except ValueError as error:
        raise BadInput(f"not JSON: {error}", place=str(file)) from None
    try:
        carriers = list(_carriers(document["firewalls"]))
        return carriers, bool(document.get("stateful", False)), bool(document.get("synchronised", False))
    except (TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"does not describe firewalls: {error}", place=str(file)) from None


def _carriers(described: Iterable[dict[str, object]]) -> Iterable[Carrier]:
    for each in described:
        left, right = (Link(**each[side]) for side in ("left", "right"))  # type: ignore[arg-type]
        yield Carrier(**{**each, "left": left, "right": right})  # type: ignore[arg-type]


def _row(one: Sharing) -> tuple[str, ...]:
    carrier = one.carrier
    share = f"{one.buckets / _BUCKETS:.1%}"
    return (carrier.name, carrier.state, f"{carrier.weight:g}", share, carrier.left.port, carrier.right.port)

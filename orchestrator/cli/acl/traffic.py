"""Options and output of commands that run recorded traffic through a list.

They show what the list would have decided about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.tables import Form, Shown
from orchestrator.cli.terminal import at_work, say
from orchestrator.errors import BadInput
from orchestrator.policy.model import Acl
from orchestrator.wire.lists import ChangedTraffic, DraftTraffic

MOST_HOURS = 8784
"""A leap year."""
_HOURS = 24
_SIGNS = {"permit": ("+", "green"), "deny": ("-", "red")}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Options that put a tenant's recorded traffic to a list."""

    tenant: Annotated[
        str | None,
        typer.Option(
            "--traffic",
            metavar="TENANT",
            help="Put packets that this tenant recorded to the list: what would it newly permit or refuse?",
            autocompletion=complete.tenants,
        ),
    ] = None
    hours: Annotated[
        int | None,
        typer.Option("--hours", min=1, max=MOST_HOURS, help=f"With --traffic: of so many hours; {_HOURS} by default."),
    ] = None

    def check(self, shown: Shown) -> None:
        """Check that the options fit together. Raises BadInput."""
        if self.tenant is not None and not shown.is_for_people and (shown.form is Form.CSV or shown.is_choosing):
            raise BadInput("traffic has no place in a table of findings; print text, JSON or YAML", place="--traffic")
        if self.tenant is None and self.hours is not None:
            raise BadInput("it says of which hours the traffic of --traffic is", place="--hours")

    def put_to(self, acl: Acl, url: str | None) -> DraftTraffic | None:
        """Return what the list would change of the recorded traffic, if requested."""
        if self.tenant is None:
            return None
        with service(url) as client, at_work("asking recorded packets"):
            return client.acls.check_traffic(self.tenant, acl, hours=self.hours or _HOURS)


def say_traffic(traffic: DraftTraffic) -> None:
    """Print what of recorded packets would fare otherwise, by rule and peer."""
    if not traffic.packets:
        say("no packets are recorded: rules with `log` record some", colour="yellow")
        return
    since = "" if traffic.since is None else f" since {traffic.since:%Y-%m-%d %H:%M} UTC"
    recorded = f"{traffic.packets:,} {_spell_packets(traffic.packets)} recorded{since}"
    say(f"of {recorded}, {traffic.newly_permitted:,} would be newly permitted, {traffic.newly_denied:,} newly refused",
        bold=True)  # fmt: skip
    for each in traffic.changes:
        _say_change(each)


def _say_change(change: ChangedTraffic) -> None:
    sign, colour = _SIGNS[change.becomes]
    rules = f"{change.rule_before or 'the default'} before, {change.rule or 'the default'} after"
    say(f"{sign} {change.direction}: {change.packets:,} {_spell_packets(change.packets)}  ({rules})", colour=colour)
    for peer in change.peers:
        say(f"    {peer.peer}: {peer.packets:,} {_spell_packets(peer.packets)}, {peer.octets:,} bytes")
    if change.peers_in_all > len(change.peers):
        say(f"    and {change.peers_in_all - len(change.peers):,} other peers")


def _spell_packets(count: int) -> str:
    return "packet" if count == 1 else "packets"

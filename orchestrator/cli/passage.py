"""`aclflow passage run | show | remove`: packets' way through a spreading switch of this machine, and its firewalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.enforce.uplink.passage import PASSAGE_GUARD, Passage
from orchestrator.enforce.uplink.passagekeeper import keep_passage
from orchestrator.enforce.uplink.passagekernel import PassageKernel, remove_passage
from orchestrator.errors import BadInput
from orchestrator.logs import configure_logging
from orchestrator.policy.addresses import Prefix
from orchestrator.settings import load


@dataclass(frozen=True, slots=True)
class Declared:
    """The passage as its operator declares it."""

    outside: Annotated[list[str], typer.Option("--outside", help="An interface towards the operator's routers.")]
    inside: Annotated[list[str], typer.Option("--inside", help="An interface towards the domain's hosts.")]
    ranges: Annotated[
        list[str], typer.Option("--range", help="Addresses that endpoints may have, as in 198.51.100.0/24.")
    ]
    outside_port: Annotated[str, typer.Option("--outside-port", help="The switch's internal port towards routers.")] = (
        OUTSIDE_PORT
    )
    inside_port: Annotated[str, typer.Option("--inside-port", help="The switch's internal port towards hosts.")] = (
        INSIDE_PORT
    )

    def passage(self) -> Passage:
        """Return the passage as the options say. Raises BadInput."""
        try:
            ranges = tuple(Prefix.parse(text) for text in self.ranges)
        except BadInput as error:
            raise BadInput(str(error), place="--range") from None
        return Passage(tuple(self.outside), tuple(self.inside), ranges, self.outside_port, self.inside_port)


@taking
def run(declared: Declared) -> None:
    """Lead what comes in on either side through the switch that spreads over firewalls, until stopped.

    What is for endpoints goes in by one of its ports, what hosts send by the other; nothing goes past it, also while a
    port or a firewall is not there. Endpoints reach no address of this machine. All of it stays when this ends.
    """
    configure_logging(load())
    keep_passage(declared.passage(), AskedToEnd())


@taking
def show(declared: Declared, shown: Shown) -> None:
    """Show what is led into the switch, by which port. Exits with 1 where a side is not."""
    passage = declared.passage()
    led = PassageKernel(passage).look()
    found = [
        {"from": ", ".join(way.came_by), "port": way.port, "prefix": str(prefix), "led": way.port in led}
        for way in passage.ways
        for prefix in way.prefixes
    ]
    rows = [(each["from"], each["prefix"], each["port"], "yes" if each["led"] else "no") for each in found]
    shown.say(found, ("from", "prefix", "port", "led"), rows)
    if len(led) < len(passage.ports):
        raise typer.Exit(ANSWER_IS_NO)


@taking
def remove() -> None:
    """Lead nothing into the switch any more. Safe to repeat.

    The guard stays, so that nothing is forwarded past firewalls. Stop `aclflow passage run` first, or all comes back.
    """
    remove_passage()
    say(f"nothing is led into the switch any more, and nothing past it: nft delete table inet {PASSAGE_GUARD}")

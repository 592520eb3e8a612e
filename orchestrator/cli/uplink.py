"""`aclflow uplink run | show | remove`: the routed uplink of this machine, a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import BRIDGE, Bridge, RunDir, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import complain, say
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.enforce.uplink.monitors import SwitchRows
from orchestrator.enforce.uplink.routeduplink import GUARD_TABLE, RoutedUplink
from orchestrator.enforce.uplink.segment import KernelSegments
from orchestrator.enforce.uplink.uplinkkeeper import keep_uplink, remove_uplink
from orchestrator.enforce.uplink.uplinkkernel import UplinkKernel
from orchestrator.errors import BadInput, Unreachable
from orchestrator.hosts.ovs import RUN_DIR, LocalSwitch
from orchestrator.hosts.switch import ROUTED_PORT
from orchestrator.logs import configure_logging
from orchestrator.policy.addresses import Prefix
from orchestrator.settings import load

Port = Annotated[str, typer.Option("--port", help="The bridge's internal port that the kernel routes to.")]


@dataclass(frozen=True, slots=True)
class Declared:
    """The uplink as its operator declares it."""

    ranges: Annotated[
        list[str], typer.Option("--range", help="Addresses that endpoints may have, as in 198.51.100.0/24.")
    ]
    fabric: Annotated[
        list[str] | None, typer.Option("--fabric", help="An interface towards the operator's router.")
    ] = None
    segment: Annotated[
        list[str] | None,
        typer.Option(
            "--segment", help="An interface on the network that endpoints have addresses of: answer for them there."
        ),
    ] = None
    beside: Annotated[
        list[str] | None,
        typer.Option("--beside", help="Another interface that this machine forwards packets to and from."),
    ] = None
    port: Port = ROUTED_PORT

    def uplink(self) -> RoutedUplink:
        """Return the uplink as the options say. Raises BadInput."""
        try:
            ranges = tuple(Prefix.parse(text) for text in self.ranges)
        except BadInput as error:
            raise BadInput(str(error), place="--range") from None
        fabric, segments = tuple(self.fabric or ()), tuple(self.segment or ())
        return RoutedUplink(fabric, ranges, tuple(self.beside or ()), self.port, segments)


@taking
def run(
    declared: Declared,
    bridge: Bridge = BRIDGE,
    run_dir: RunDir = RUN_DIR,
    silent_s: Annotated[
        float, typer.Option("--silent", min=0, help="Seconds that routes outlive a switch that does not answer.")
    ] = 10.0,
) -> None:
    """Keep the kernel's routes to endpoints of this machine's switch, until stopped.

    These are the endpoints that the switch delivers to. A routing daemon announces them: `protocol 172`, metric 8
    for one that has just come, 10, or 12 for one that has sent nothing yet. On a segment the kernel answers for
    those that have sent something, by ARP and neighbour discovery with this machine's MAC address; no daemon is needed.
    Endpoints reach no address of this machine, and it forwards between the port and the fabric, and among the fabric
    and interfaces beside it, and nothing else. Routes stay when this ends; `aclflow uplink remove` withdraws them.
    """
    configure_logging(load())
    stopping = AskedToEnd()
    keep_uplink(declared.uplink(), SwitchRows(LocalSwitch(run_dir), bridge), stopping, silent_s=silent_s)


@taking
def show(shown: Shown, port: Port = ROUTED_PORT, bridge: Bridge = BRIDGE, run_dir: RunDir = RUN_DIR) -> None:
    """Show the endpoints that the switch delivers to, and what the kernel does for each.

    Routes are announced; on a segment the kernel answers. Exits with 1 where delivered and routed differ.
    """
    state, answered = UplinkKernel(port).look(), KernelSegments().look()
    try:
        delivered, trouble = frozenset(SwitchRows(LocalSwitch(run_dir), bridge).read()), ""
    except Unreachable as error:
        delivered, trouble = frozenset(), str(error)
    routed = state.prefixes
    found = [
        (str(prefix), prefix in delivered, prefix in routed, prefix in answered)
        for prefix in sorted(delivered | routed | answered)
    ]
    columns = ("prefix", "delivered", "routed", "answered")
    rows = [(prefix, *map(_spell_yes, held)) for prefix, *held in found]
    shown.say([dict(zip(columns, each, strict=True)) for each in found], columns, rows)
    if trouble:
        complain(trouble)
    if state.port.index is None:
        complain(f"there is no interface '{port}' here")
    if trouble or delivered != routed:
        raise typer.Exit(ANSWER_IS_NO)


@taking
def remove(port: Port = ROUTED_PORT) -> None:
    """Withdraw routes, answers on segments, neighbours and the table of nftables. Safe to repeat.

    Stop `aclflow uplink run` first, or they come back. Forwarding stays switched on.
    """
    remove_uplink(UplinkKernel(port), GuardTable(GUARD_TABLE, ()))
    say(f"nothing is routed to {port} any more")


def _spell_yes(is_so: bool) -> str:
    return "yes" if is_so else "no"

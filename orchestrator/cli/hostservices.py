"""`aclflow host services`: DHCP, router advertisements and DNS that this machine gives endpoints.

Endpoints need them to come up. The commands are run, show and remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import BRIDGE, Bridge, RunDir, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import complain, say
from orchestrator.compile.pipelines.host import SERVICES_PORT, Table
from orchestrator.enforce.services.hostservices import HostServices, Subnet
from orchestrator.enforce.services.servicekeeper import keep_services, offers, remove_services
from orchestrator.enforce.services.serviceport import ServicesKernel
from orchestrator.enforce.stopsignal import AskedToEnd
from orchestrator.errors import AclflowError, BadInput
from orchestrator.hosts.ovs import RUN_DIR, LocalSwitch
from orchestrator.logs import configure_logging
from orchestrator.policy.addresses import format_address, format_mac
from orchestrator.settings import load


@dataclass(frozen=True, slots=True)
class Declared:
    """The services as their operator declares them."""

    subnets: Annotated[
        list[str] | None,
        typer.Option(
            "--subnet",
            help="Addresses of endpoints, as in 198.51.100.0/24: they are told its mask, and its first address as "
            "their router, or another (198.51.100.0/24=198.51.100.254).",
        ),
    ] = None
    servers: Annotated[
        list[str] | None,
        typer.Option("--dns", help="A resolver that names are asked of; without any, those of /etc/resolv.conf."),
    ] = None
    mtu: Annotated[int, typer.Option("--mtu", help="The MTU that endpoints are told.")] = 1500
    lease_s: Annotated[int, typer.Option("--lease", help="Seconds after which an address is asked for anew.")] = 86400

    def services(self) -> HostServices:
        """Return the services as the options say. Raises BadInput."""
        try:
            subnets = tuple(Subnet.parse(text) for text in self.subnets or ())
        except BadInput as error:
            raise BadInput(str(error), place="--subnet") from None
        return HostServices(subnets, tuple(self.servers or ()), self.mtu, self.lease_s)


@taking
def run(declared: Declared, bridge: Bridge = BRIDGE, run_dir: RunDir = RUN_DIR) -> None:
    """Answer the endpoints of this machine's switch: DHCP, DHCPv6, router advertisements, DNS; until stopped.

    The rows of the switch say who asks and which address is theirs, so there are no leases. dnsmasq resolves names at
    169.254.169.253 and fd00:ac1f::53. Endpoints that already have their addresses keep them when this ends.
    """
    configure_logging(load())
    keep_services(declared.services(), LocalSwitch(run_dir), bridge, AskedToEnd())


@taking
def show(shown: Shown, bridge: Bridge = BRIDGE, run_dir: RunDir = RUN_DIR) -> None:
    """Show which addresses this machine offers to whom, read back from its switch.

    Exits with 1 where the switch or the kernel is not as the services need it.
    """
    trouble = []
    try:
        found = offers(LocalSwitch(run_dir).flows(bridge, Table.ADMISSION))
    except AclflowError as error:
        found, trouble = [], [str(error)]
    rows = [(str(each.port), format_mac(each.mac), format_address(each.family, each.address)) for each in found]
    document = [{"port": int(port), "mac": mac, "address": address} for port, mac, address in rows]
    shown.say(document, ("port", "mac", "address"), rows)
    trouble += ServicesKernel(SERVICES_PORT).missing()
    for text in trouble:
        complain(text)
    if trouble:
        raise typer.Exit(ANSWER_IS_NO)


@taking
def remove() -> None:
    """Take the services' addresses, routes and tables of nftables away. Safe to repeat.

    Stop `aclflow host services run` first, or they come back. The port stays the switch's.
    """
    remove_services(HostServices(()))
    say(f"nobody is answered by {SERVICES_PORT} any more")

"""`aclflow firewall`: a domain's firewall VNFs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import DomainName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say
from orchestrator.statesync.conntrackd import PORT, SharedTracking
from orchestrator.wire.firewalls import Firewall, Plane

FirewallName = Annotated[
    str,
    typer.Argument(
        metavar="FIREWALL", help="The firewall's name, which its agent bears.", autocompletion=complete.firewalls
    ),
]


@taking
def add(
    domain: DomainName,
    firewall: FirewallName,
    plane: Annotated[Plane, typer.Option("--plane", help="The packet filter that it uses.")] = Plane.NFTABLES,
    url: Url = None,
) -> None:
    """Bring a firewall VNF into a domain.

    Refused where it cannot carry what the domain's lists say.
    """
    with service(url) as client:
        generation = client.firewalls.add(domain, firewall, plane.value)
    say(f"firewall {firewall} belongs to {domain} from generation {generation} on")


@taking
def list_all(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List a domain's firewall VNFs with what they say of their load."""
    with service(url) as client:
        found = list(client.firewalls.read_all(domain))
    document = [{**asdict(each), "reported": each.load and each.load.reported} for each in found]
    columns = ("firewall", "plane", "packets/s", "bits/s", "CPU", "connections", "told", "trouble")
    shown.say(document, columns, map(_make_row, found))


@taking
def remove(domain: DomainName, firewall: FirewallName, url: Url = None) -> None:
    """Take a firewall VNF out of a domain.

    It goes on as it was last programmed.
    """
    with service(url) as client:
        client.firewalls.remove(domain, firewall)
    say(f"firewall {firewall} does not belong to {domain} any more")


@taking
def conntrackd(
    address: Annotated[str, typer.Option("--address", help="This firewall's address on the link to the others.")],
    interface: Annotated[
        str, typer.Option("--interface", help="The interface of that link, which carries nothing else.")
    ],
    peer: Annotated[list[str], typer.Option("--peer", help="The address of another firewall on that link.")],
    own: Annotated[
        list[str] | None,
        typer.Option("--own", help="Another address of this firewall, whose connections are not shared."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="UDP port of all firewalls.")] = PORT,
) -> None:
    """Print conntrackd's configuration for a firewall that tracks connections in the kernel.

    The firewalls then share what nftables or iptables tracks. Put it into /etc/conntrackd/conntrackd.conf on each.
    """
    typer.echo(SharedTracking.read(address, interface, peer, own or (), port).text(), nl=False)


def _make_row(one: Firewall) -> tuple[str, ...]:
    if one.load is None:
        return (one.name, one.plane, "", "", "", "", "never", "")
    load = one.load
    cpu = f"{load.cpu_permille / 10:.1f} %"
    numbers = f"{load.packets_pps:,}", f"{load.bits_bps:,}", cpu, f"{load.connections:,}"
    return (one.name, one.plane, *numbers, load.reported.isoformat(timespec="seconds"), load.trouble or "")

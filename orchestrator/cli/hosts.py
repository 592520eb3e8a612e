"""`aclflow host add | show | list | remove`: machines that the service makes hosts.

It also gives them back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import BRIDGE, AsJson, Bridge, DomainName, HostName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import complain, remark, say, say_json
from orchestrator.errors import BadInput, NotFound
from orchestrator.hosts.switch import Datapath
from orchestrator.wire.domains import MAX_IDLE_MS, MachineOnboarding

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of onboarding a machine."""

    address: Annotated[
        str,
        typer.Option(
            "--address",
            help="Of the machine that runs Open vSwitch, as [USER@]ADDRESS[:PORT]; `local` is the service's own.",
        ),
    ]
    uplink: Annotated[str, typer.Option("--uplink", help="Its interface towards the edge.")]
    controller: Annotated[
        list[str] | None,
        typer.Option("--controller", help="One that runs already, as in tcp:192.0.2.1:6653 or ssl:..."),
    ] = None
    install_controller: Annotated[
        str | None, typer.Option("--install-controller", help="Or: install one there, [USER@]ADDRESS[:PORT].")
    ] = None
    dhcp: Annotated[list[str] | None, typer.Option("--dhcp", help="A server that every endpoint may reach.")] = None
    dns: Annotated[list[str] | None, typer.Option("--dns", help="A server that every endpoint may reach.")] = None
    ntp: Annotated[list[str] | None, typer.Option("--ntp", help="A server that every endpoint may reach.")] = None
    bridge: Bridge = BRIDGE
    datapath: Annotated[Datapath, typer.Option("--datapath", help="In the kernel or in the daemon.")] = Datapath.SYSTEM
    max_idle: Annotated[int, typer.Option("--max-idle", help="Of the datapath's cache entries, in ms.")] = MAX_IDLE_MS
    tls: Annotated[bool, typer.Option("--tls", help="OpenFlow over TLS.")] = False
    adopt: Annotated[bool, typer.Option("--adopt", help="Take over a bridge that carries somebody's flows.")] = False

    def document(self, name: str) -> dict[str, object]:
        """Return the body for the REST interface. Raises BadInput."""
        essential = {"dhcp": self.dhcp or [], "dns": self.dns or [], "ntp": self.ntp or []}
        installs = {"controller": _login(self.install_controller)} if self.install_controller else {}
        return {
            "name": name,
            "machine": _login(self.address),
            "uplink": self.uplink,
            "controllers": self.controller or [],
            "essential_services": essential,
            "bridge": self.bridge,
            "datapath": self.datapath.value,
            "max_idle_ms": self.max_idle,
            "tls": self.tls,
            "adopt": self.adopt,
            **installs,
        }


NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; `aclflow host show` says how far it is.")]


@taking
def add(
    domain: DomainName, host: HostName, asked: Asked, no_wait: NoWait = False, url: Url = None, as_json: AsJson = False
) -> None:
    """Make a machine a host, and wait until it holds the domain's policy.

    Its switch is configured default off, then the machine joins the domain. A machine that was cut off or has failed is
    asked for again with the same command.
    """
    with service(url) as client:
        seen = client.onboarding.begin(domain, asked.document(host))
        if not no_wait:
            seen = _follow_steps(seen, lambda: client.onboarding.read(domain, host))
    _say_end(seen, as_json=as_json)


@taking
def show(domain: DomainName, host: HostName, url: Url = None, as_json: AsJson = False) -> None:
    """Show how far a machine is, and what to change where it failed."""
    with service(url) as client:
        _say_onboarding(client.onboarding.read(domain, host), as_json=as_json)


@taking
def list_all(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List the machines that were onboarded, or are on their way."""
    with service(url) as client:
        found = list(client.onboarding.read_all(domain))
    rows = ((one.name, one.machine, one.state, one.step, one.error or "") for one in found)
    shown.say(found, ("host", "machine", "state", "step", "error"), rows)


@taking
def remove(
    domain: DomainName, host: HostName, no_wait: NoWait = False, url: Url = None, as_json: AsJson = False
) -> None:
    """Give a machine back: close its switch, then remove the host.

    As the switch is closed first, nothing passes unfiltered.
    """
    with service(url) as client:
        seen = client.onboarding.give_back(domain, host)
        if not no_wait:
            try:
                seen = _follow_steps(seen, lambda: client.onboarding.read(domain, host))
            except NotFound:
                say(f"host {host} does not belong to {domain} any more; its switch forwards nothing")
                return
    _say_end(seen, as_json=as_json)


def _follow_steps(seen: MachineOnboarding, look: Callable[[], MachineOnboarding]) -> MachineOnboarding:
    """Tell every step as it comes, until nothing is under way."""
    step = ""
    while seen.under_way:
        if seen.step != step:
            step = seen.step
            remark(step)
        time.sleep(_LOOK_S)
        seen = look()
    return seen


def _say_end(seen: MachineOnboarding, *, as_json: bool) -> None:
    _say_onboarding(seen, as_json=as_json)
    if seen.state == "failed":
        raise typer.Exit(ANSWER_IS_NO)


def _say_onboarding(seen: MachineOnboarding, *, as_json: bool) -> None:
    if as_json:
        say_json(seen)
    elif seen.error:
        complain(f"{seen.name} on {seen.machine}: {seen.error}")
    else:
        say(f"{seen.name} on {seen.machine}: {seen.state}, {seen.step}")


def _login(text: str) -> dict[str, object]:
    """A machine as [USER@]ADDRESS[:PORT]; an IPv6 address with a port in brackets. Raises BadInput."""
    user, at, rest = text.rpartition("@")
    address, port = rest, ""
    if rest.startswith("["):
        address, _, after = rest[1:].partition("]")
        port = after.removeprefix(":")
    elif rest.count(":") == 1:
        address, _, port = rest.partition(":")
    if not address or (port and not (port.isascii() and port.isdigit())) or (at and not user):
        raise BadInput(f"'{text}' is not [USER@]ADDRESS[:PORT]", place="--address")
    return {"address": address, **({"user": user} if user else {}), **({"port": int(port)} if port else {})}

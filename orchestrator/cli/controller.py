"""`aclflow controller`: the OpenFlow controller of a domain, as a process."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.membership import EnrolFile, membership
from orchestrator.cli.options import Url, taking
from orchestrator.client import Host
from orchestrator.compile.pipelines.spread import INSIDE_PORT
from orchestrator.enforce.controller import ControllerSettings, run_controller
from orchestrator.enforce.drivers.openflow.launcher import Listen
from orchestrator.enforce.drivers.openflow.stream import Tls
from orchestrator.enforce.standing import Timing
from orchestrator.errors import BadInput
from orchestrator.identity.names import SPREADING_SWITCH
from orchestrator.identity.trust import is_loopback
from orchestrator.logs import configure_logging
from orchestrator.settings import load


class SwitchTier(enum.Enum):
    """Kinds of switches that a controller controls."""

    HOST = "host"
    EDGE = "edge"


_DATAPATH = re.compile(r"[0-9a-fA-F]{16}")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how switches connect."""

    listen: Annotated[str, typer.Option("--listen", help="An ADDRESS:PORT.")] = "127.0.0.1:6653"
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS with switches, by the certificate that we enrolled with.")
    ] = False
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="Speak TLS by files of another authority: our key (PEM).")
    ] = None
    tls_certificate: Annotated[Path | None, typer.Option("--tls-certificate", help="Our certificate.")] = None
    tls_authority: Annotated[
        Path | None, typer.Option("--tls-authority", help="The authority that must have signed the controller's.")
    ] = None

    plain_openflow: Annotated[
        bool, typer.Option("--plain-openflow", help="Speak OpenFlow in clear on an address that others reach.")
    ] = False

    def address(self) -> Listen:
        """The address to listen on, as the launcher takes it. Raises BadInput.

        OpenFlow in clear is refused, too, on an address that others reach.
        """
        address, colon, port = self.listen.rpartition(":")
        if not (colon and address and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise BadInput(f"'{self.listen}' is not ADDRESS:PORT", place="--listen")
        host, tls = address.strip("[]"), self._make_tls()
        if not (self.tls or tls is not None or self.plain_openflow or is_loopback(host)):
            raise BadInput(
                f"in clear, whoever reaches {host} could pass for a switch and be given its program: speak TLS "
                "(--tls), or say --plain-openflow",
                place="--listen",
            )
        return Listen(host, int(port), tls)

    def _make_tls(self) -> Tls | None:
        key, certificate, authority = self.tls_key, self.tls_certificate, self.tls_authority
        if key is None or certificate is None or authority is None:
            if (key, certificate, authority) != (None, None, None):
                raise BadInput("a key, a certificate and an authority go together: give all or none", place="--tls-key")
            return None
        if self.tls:
            raise BadInput("speak TLS by our own certificate or by these files, not by both", place="--tls")
        return Tls(key, certificate, authority)


def spreading_switch(datapath_id: str) -> Host:
    """The switch that spreads traffic, by its datapath id. Raises BadInput."""
    if not _DATAPATH.fullmatch(datapath_id):
        raise BadInput(f"'{datapath_id}' is no datapath id of 16 hexadecimal digits", place="--spreads")
    return Host(SPREADING_SWITCH, int(datapath_id, 16), INSIDE_PORT)


@taking
def controller(
    listening: Listening,
    name: Annotated[str | None, typer.Option("--name", help="At the service; by default this machine's.")] = None,
    count_every: Annotated[
        float, typer.Option("--count-every", min=0.1, help="Read the switches' counters so often, in seconds.")
    ] = Timing().count_every_s,
    spreads: Annotated[
        str | None,
        typer.Option(
            "--spreads",
            metavar="DATAPATH",
            help="Control the switch of this datapath id, which spreads the domain's traffic over firewalls, "
            "instead of hosts' switches.",
        ),
    ] = None,
    tier: Annotated[
        SwitchTier, typer.Option("--tier", help="Which switches to control: hosts', or the edge switches of a PoP.")
    ] = SwitchTier.HOST,
    enrol_file: EnrolFile = None,
    url: Url = None,
) -> None:
    """Run the OpenFlow controller of a domain.

    The first start enrols with the one-time token in ACLFLOW_TOKEN (`aclflow domain invite` makes one). Its state is
    kept in ACLFLOW_STATE_DIR, so that it starts and repairs switches while the service is away.
    """
    settings = load()
    configure_logging(settings)
    run_controller(
        ControllerSettings(
            membership(settings, name, url, enrol_file),
            listening.address(),
            timing=Timing(count_every_s=count_every),
            own_tls=listening.tls,
            spreads=None if spreads is None else spreading_switch(spreads),
            edges=tier is SwitchTier.EDGE,
        )
    )

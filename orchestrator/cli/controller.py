"""`aclflow controller`: the OpenFlow controller of a domain, as a process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Url, taking
from orchestrator.enforce.controller import ControllerSettings, run_controller
from orchestrator.enforce.drivers.openflow.launcher import Listen
from orchestrator.enforce.drivers.openflow.stream import Tls
from orchestrator.enforce.enrolment import Membership
from orchestrator.enforce.standing import Timing
from orchestrator.errors import BadInput
from orchestrator.logs import configure_logging
from orchestrator.settings import Settings, load


@dataclass(frozen=True, slots=True)
class Listening:
    """Where and how switches connect."""

    listen: Annotated[str, typer.Option("--listen", help="An ADDRESS:PORT.")] = "127.0.0.1:6653"
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Speak TLS: our key (PEM).")] = None
    tls_certificate: Annotated[Path | None, typer.Option("--tls-certificate", help="Our certificate.")] = None
    tls_authority: Annotated[Path | None, typer.Option("--tls-authority", help="Who must have signed theirs.")] = None

    def address(self) -> Listen:
        """As the launcher wants it. Raises BadInput."""
        address, colon, port = self.listen.rpartition(":")
        if not (colon and address and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise BadInput(f"'{self.listen}' is not ADDRESS:PORT", place="--listen")
        return Listen(address.strip("[]"), int(port), self._tls())

    def _tls(self) -> Tls | None:
        key, certificate, authority = self.tls_key, self.tls_certificate, self.tls_authority
        if key is None or certificate is None or authority is None:
            if (key, certificate, authority) != (None, None, None):
                raise BadInput("a key, a certificate and an authority go together: give all or none", place="--tls-key")
            return None
        return Tls(key, certificate, authority)


def membership(settings: Settings, name: str | None, url: str | None) -> Membership:
    """Where an enforcement point of this machine belongs."""
    return Membership(
        url=url or settings.url,
        state_dir=settings.state_dir,
        name=name or socket.gethostname(),
        token=settings.token,
        authority=settings.authority,
    )


@taking
def controller(
    listening: Listening,
    name: Annotated[str | None, typer.Option("--name", help="At the service; by default this machine's.")] = None,
    count_every: Annotated[
        float, typer.Option("--count-every", min=0.1, help="Read the switches' counters so often, in seconds.")
    ] = Timing().count_every_s,
    url: Url = None,
) -> None:
    """Run the OpenFlow controller of a domain.

    The first start enrols with the one-time token in ACLFLOW_TOKEN (`aclflow domain invite` makes one). What it needs
    later is kept in ACLFLOW_STATE_DIR, so that it starts and repairs switches while the service is away.
    """
    settings = load()
    configure_logging(settings)
    run_controller(
        ControllerSettings(
            membership(settings, name, url),
            listening.address(),
            timing=Timing(count_every_s=count_every),
        )
    )

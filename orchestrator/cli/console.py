"""`aclflow console`: the web console, beside the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Url, taking
from orchestrator.cli.terminal import remark
from orchestrator.errors import BadInput
from orchestrator.extras import needs_extra
from orchestrator.identity.trust import is_loopback, server_context
from orchestrator.settings import load
from orchestrator.statesync.status import read_place


@taking
def console(
    url: Url = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to listen.")] = 8421,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="Speak HTTPS and show this; see `aclflow certificates`.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The certificate's key; it may be in the same file.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Speak HTTP in clear on an address that others reach.")
    ] = False,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster", help="DOMAIN=ADDRESS:PORT of each firewall cluster's member's --metrics, to be shown."
        ),
    ] = None,
) -> None:
    """Run the web console, a client of the service.

    Users sign in with a token of the service.
    """
    if (tls_certificate is None) != (tls_key is None):
        raise BadInput("a certificate and its key go together: say both or none", place="--tls-certificate")
    if not (tls_certificate or plain_http or is_loopback(host)):
        raise BadInput(
            f"at '{host}' tokens could be read on the way: give it a certificate (--tls-certificate, --tls-key), or "
            "say --plain-http",
            place="--host",
        )
    with needs_extra("console", "the console"):
        from api.console.server import ConsoleSettings, serve  # noqa: PLC0415 -- takes a second to import

    settings, clusters = load(), _clusters(cluster or [])
    shown = None if tls_certificate is None or tls_key is None else server_context(tls_certificate, tls_key)
    remark(f"the console is at {'https' if shown else 'http'}://{host}:{port}/")
    wanted = ConsoleSettings(host, port, url or settings.url, settings.authority, clusters, settings.plain_http)
    serve(wanted, shown)


def _clusters(members: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The places of members by domain. Raises BadInput."""
    found: dict[str, list[str]] = {}
    for text in members:
        domain, _, where = text.partition("=")
        if not domain or not where:
            raise BadInput(f"'{text}' is not DOMAIN=ADDRESS:PORT", place="--cluster")
        read_place(where, "--cluster")
        found.setdefault(domain, []).append(where)
    return found

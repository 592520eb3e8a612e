"""`aclflow console`: the web console, beside the service."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.options import Url, taking
from orchestrator.cli.terminal import remark
from orchestrator.errors import Missing
from orchestrator.settings import load


@taking
def console(
    url: Url = None,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to listen.")] = 8421,
) -> None:
    """Run the web console, a client of the service. Whoever opens it signs in with a token of the service."""
    try:
        from api.console.server import ConsoleSettings, serve  # noqa: PLC0415 -- takes a second to import
    except ModuleNotFoundError as error:
        raise Missing(f"the console needs {error.name}: install aclflow[console]") from None

    settings = load()
    remark(f"the console is at http://{host}:{port}/")
    serve(ConsoleSettings(host, port, url or settings.url, settings.authority))

"""Arguments that name things at the service, with completion for each."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import complete

TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", autocompletion=complete.tenants)]
OfTenant = Annotated[str, typer.Option("--tenant", "-t", help="Whose it is.", autocompletion=complete.tenants)]
DomainName = Annotated[
    str, typer.Argument(metavar="DOMAIN", help="The security domain.", autocompletion=complete.domains)
]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="The host's name.", autocompletion=complete.hosts)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete.groups)]

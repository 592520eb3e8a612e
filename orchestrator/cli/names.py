"""Arguments that name things at the service, with completion for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.errors import BadInput


def _tell_order(ctx: Any, value: str | None) -> str | None:
    """Answer the old way of naming the tenant with the new one."""
    if value is not None:
        raise BadInput(f"the tenant comes first now: {ctx.command_path} {value} ...", place="--tenant")
    return value


TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.", autocompletion=complete.tenants)]
DomainName = Annotated[
    str, typer.Argument(metavar="DOMAIN", help="The security domain.", autocompletion=complete.domains)
]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="The host's name.", autocompletion=complete.hosts)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", autocompletion=complete.groups)]


@dataclass(frozen=True, slots=True)
class OfTenant:
    """The tenant as the first argument; its old option answers with that."""

    tenant: TenantName
    former: Annotated[str | None, typer.Option("--tenant", "-t", hidden=True, is_eager=True, callback=_tell_order)] = (
        None
    )

"""`aclflow token list` and `token revoke`: the tokens that the service knows."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.terminal import say, say_json, say_table


@taking
def list_all(url: Url = None, as_json: AsJson = False) -> None:
    """List every token, without secrets."""
    with service(url) as client:
        found = client.tokens()
    if as_json:
        say_json(found)
        return
    say_table(
        ("token", "role", "tenant", "description", "expires"),
        (
            (
                one.id,
                one.role,
                one.tenant or "",
                one.description,
                f"{one.expires:%Y-%m-%d %H:%M}" if one.expires else "",
            )
            for one in found
        ),
    )


@taking
def revoke(
    token: Annotated[int, typer.Argument(metavar="TOKEN", min=1, help="Its number, see `aclflow token list`.")],
    url: Url = None,
) -> None:
    """Make a token invalid, at once."""
    with service(url) as client:
        client.revoke_token(token)
    say(f"token {token} is revoked")

"""`aclflow token`: the tokens that requests are made with, at the service."""

from __future__ import annotations

import datetime as dt
from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, Url, end_of, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json
from orchestrator.errors import BadInput, ChangeTheRequest
from orchestrator.wire.codec import fill
from orchestrator.wire.enrolment import NewToken


class BearerRole(Enum):
    """Roles of a token's bearer; enforcers enrol instead."""

    ADMIN = "admin"
    MEMBER = "member"
    READER = "reader"


_OPTIONS = frozenset({"tenant", "description", "expires", "person"})
"""The service's fields whose names are also those of options."""
OfBearer = Annotated[
    str | None, typer.Option("--tenant", "-t", help="Of members and readers.", autocompletion=complete.tenants)
]
Expires = Annotated[str | None, typer.Option("--expires", help="When it ends: in 4w, tomorrow 18:00, 2030-01-31.")]
Days = Annotated[int | None, typer.Option("--days", min=1, help="Or: how long it is good for.")]
Person = Annotated[
    str, typer.Option("--person", help="Who bears it; without a word, who makes it. Two persons approve a proposal.")
]
Purpose = Annotated[str, typer.Option("--description", help="The purpose of the rule.")]


def end_of_token(expires: str | None, days: int | None) -> dt.datetime | None:
    """Return when a token ends; None: as late as it may.

    It ends at a time, or after so many days. Raises BadInput for both.
    """
    if expires is not None and days is not None:
        raise BadInput("give --expires or --days, not both")
    if days is not None:
        return dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    return end_of(expires, "--expires") if expires else None


@taking
def create(
    role: Annotated[BearerRole, typer.Option("--role", help="The rights of its bearer.")],
    tenant: OfBearer = None,
    expires: Expires = None,
    days: Days = None,
    description: Purpose = "",
    person: Person = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token at the service, as an administrator. It is shown only now.

    The first token of a service is made on its machine: `aclflow db token --role admin`.
    """
    until = end_of_token(expires, days)
    try:
        with service(url) as client:
            made, secret = client.tokens.create(
                role.value, tenant=tenant, description=description, expires=until, person=person
            )
    except ChangeTheRequest as error:
        error.place = f"--{error.place}" if error.place in _OPTIONS else error.place
        raise
    if as_json:
        say_json(fill(NewToken, made, token=secret))
    else:
        say(secret)


@taking
def rotate(
    token: Annotated[
        int | None,
        typer.Argument(
            metavar="[TOKEN]", min=1, help="Its number; by default the one in use.", autocompletion=complete.tokens
        ),
    ] = None,
    overlap: Annotated[float, typer.Option("--overlap", min=0, help="For so many hours both are good.")] = 24.0,
    expires: Expires = None,
    days: Days = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Replace a token by another of the same bearer, shown only now.

    The old one ends after an overlap.
    """
    until = end_of_token(expires, days)
    with service(url) as client:
        number = client.tokens.read_own().id if token is None else token
        made, secret = client.tokens.rotate(number, overlap=dt.timedelta(hours=overlap), expires=until)
    if as_json:
        say_json(fill(NewToken, made, token=secret))
    else:
        say(secret)


@taking
def list_all(shown: Shown, url: Url = None) -> None:
    """List every token, without secrets."""
    with service(url) as client:
        found = client.tokens.read_all()
    shown.say(
        found,
        ("token", "role", "tenant", "person", "made by", "description", "expires"),
        (
            (
                one.id,
                one.role,
                one.tenant or "",
                one.person,
                one.made_by or "",
                one.description,
                f"{one.expires:%Y-%m-%d %H:%M}" if one.expires else "",
            )
            for one in found
        ),
    )


@taking
def show(url: Url = None, as_json: AsJson = False) -> None:
    """Show what the token in use may do, and until when."""
    with service(url) as client:
        one = client.tokens.read_own()
    if as_json:
        say_json(one)
        return
    whose = f" of {one.tenant or one.domain}" if one.tenant or one.domain else ""
    until = f", until {one.expires:%Y-%m-%d %H:%M} UTC" if one.expires else ""
    say(f"{one.role}{whose}: token {one.id}{until}" + (f", {one.description}" if one.description else ""))


@taking
def revoke(
    token: Annotated[int, typer.Argument(metavar="TOKEN", min=1, help="Its number.", autocompletion=complete.tokens)],
    url: Url = None,
) -> None:
    """Make a token invalid, at once."""
    with service(url) as client:
        client.tokens.revoke(token)
    say(f"token {token} is revoked")

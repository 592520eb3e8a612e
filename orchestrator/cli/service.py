"""`aclflow serve`, `db upgrade` and `db token`: the service and its database on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from orchestrator import bootstrap, statedir
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import at_work, say, say_json
from orchestrator.cli.tokens import Days, Expires, OfBearer, Person, Purpose, end_of_token
from orchestrator.settings import load
from orchestrator.store import migrate
from orchestrator.store.records import Role


@taking
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Where to listen; ACLFLOW_LISTEN_HOST by default.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0 takes a free one; ACLFLOW_LISTEN_PORT by default.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS and know machines by certificates; see `aclflow certificates`.")
    ] = False,
    tls_name: Annotated[
        list[str] | None, typer.Option("--tls-name", help="A name or address that it is reached by; may be repeated.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Speak HTTP in clear although others could read it on the way.")
    ] = False,
) -> None:
    """Run the service: REST interface and control loops.

    Settings come from ACLFLOW_* in the environment and from the file that ACLFLOW_CONFIG names. With SQLite (the
    default) exactly one may run.
    """
    settings = load()
    if host is not None:
        settings = replace(settings, listen_host=host)
    if port is not None:
        settings = replace(settings, listen_port=port)
    settings = replace(
        settings,
        tls=settings.tls or tls,
        tls_names=",".join(tls_name) if tls_name else settings.tls_names,
        plain_http=settings.plain_http or plain_http,
    )
    bootstrap.serve(settings)


@taking
def upgrade() -> None:
    """Bring the database to this program's schema. Safe to repeat; stop the service before."""
    settings = load()
    statedir.make_state_dir(settings)
    with at_work("upgrading the database"):
        done = migrate.upgrade(settings.database_url)
    say(
        f"the schema is {done.after}"
        + (", as it was" if done.before == done.after else f", was {done.before or 'none'}")
    )


@taking
def create_token(
    role: Annotated[Role, typer.Option("--role", help="The rights of its bearer.")],
    tenant: OfBearer = None,
    expires: Expires = None,
    days: Days = None,
    description: Purpose = "",
    person: Person = "",
    as_json: AsJson = False,
) -> None:
    """Make a token in this machine's database: the first one of a service.

    It is shown only now. Without a database there is no service here, and nothing is made.
    """
    until = end_of_token(expires, days)
    made = bootstrap.create_token(load(), role, tenant=tenant, expires=until, description=description, person=person)
    if as_json:
        say_json(
            {
                "token": made.secret,
                "role": made.record.principal.role.value,
                "tenant": made.record.principal.tenant,
                "expires": made.record.expires.isoformat() if made.record.expires else None,
            }
        )
    else:
        say(made.secret)

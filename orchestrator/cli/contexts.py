"""`aclflow context`: services by name, each with its token and authority."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from orchestrator.cli import complete
from orchestrator.cli.contextfile import CHOSEN, Context, Contexts
from orchestrator.cli.options import taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say
from orchestrator.client.connections import leads_off_in_clear
from orchestrator.errors import BadInput, Conflict, Missing, NotFound
from orchestrator.policy.model.givennames import check_name

ContextName = Annotated[str, typer.Argument(metavar="CONTEXT", help="Its name.", autocompletion=complete.contexts)]
OtherContext = Annotated[
    str | None, typer.Argument(metavar="[CONTEXT]", help="The one in use by default.", autocompletion=complete.contexts)
]


@taking
def add(
    name: ContextName,
    url: Annotated[str, typer.Option("--url", help="The service, such as https://aclflow.example:8420.")],
    authority: Annotated[
        Path | None, typer.Option("--authority", "--ca", help="The certificate (PEM) that the service's is signed by.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", help="A file with the token; - is standard input. Else you are asked.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Speak HTTP in clear to an address that others reach.")
    ] = False,
    use: Annotated[bool, typer.Option("--use/--no-use", help="Use it from now on.")] = True,
) -> None:
    """Store a service with its token under a name, and use it.

    Only you may read the file. The token is never said on the command line, which everybody on the machine can read.
    """
    check_name(name, "a context", place="CONTEXT")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise BadInput(f"'{url}' is not a URL such as https://aclflow.example:8420", place="--url")
    if leads_off_in_clear(parts) and not plain_http:
        raise BadInput(f"at '{url}' tokens could be read on the way: give https://, or say --plain-http", place="--url")
    contexts = Contexts.load()
    if name in contexts.named:
        raise Conflict(f"there is a context '{name}' already: delete it first")
    if authority is not None and not authority.is_file():
        raise Missing(f"{authority} is no file", place="--authority")
    held = None if authority is None else str(authority.resolve())
    made = Context(url, _token(token_file), held, plain_http)
    Contexts({**contexts.named, name: made}, name if use else contexts.current).save()
    say(f"context {name} is {url}" + (", in use" if use else ""))


def _token(name: str | None) -> str:
    """The token: of a file, or asked for on the terminal. Raises BadInput and Missing."""
    if name is None:
        if not sys.stdin.isatty():
            raise BadInput("nobody can be asked without a terminal: --token-file says where the token is")
        text: str = typer.prompt("Token", hide_input=True, err=True)
    else:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Missing(f"it cannot be read: {error}", place="--token-file") from None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput("that is no token", place="--token-file")
    return token


@taking
def use(name: ContextName) -> None:
    """Use a context from now on."""
    contexts = Contexts.load()
    found = contexts.get(name)
    replace(contexts, current=name).save()
    say(f"context {name} is in use: {found.url}")
    if "ACLFLOW_TOKEN" in os.environ or CHOSEN in os.environ:
        remark("ACLFLOW_TOKEN or ACLFLOW_CONTEXT is set in this shell, and goes first")


@taking
def list_all(shown: Shown) -> None:
    """List the contexts, without their tokens."""
    contexts = Contexts.load()
    rows = [
        ("*" if name == contexts.current else "", name, each.url, each.authority or "")
        for name, each in contexts.named.items()
    ]
    document = [
        {"name": name, "url": url, "authority": authority or None, "in_use": bool(mark)}
        for mark, name, url, authority in rows
    ]
    shown.say(document, ("in use", "context", "url", "authority"), rows)


@taking
def show(shown: Shown, name: OtherContext = None) -> None:
    """Show where a context leads, without its token."""
    contexts = Contexts.load()
    chosen = name or os.environ.get(CHOSEN) or contexts.current
    if chosen is None:
        raise NotFound("no context is in use: `aclflow context add` or `aclflow context use`")
    found = contexts.get(chosen)
    document = {"name": chosen, "url": found.url, "authority": found.authority}
    shown.say(document, ("what", "value"), [(what, value or "") for what, value in document.items()])


@taking
def delete(name: ContextName) -> None:
    """Forget a context and its token. The token stays valid until it is revoked."""
    contexts = Contexts.load()
    contexts.get(name)
    left = {each: context for each, context in contexts.named.items() if each != name}
    Contexts(left, None if contexts.current == name else contexts.current).save()
    say(f"context {name} is forgotten; its token is valid until it is revoked")

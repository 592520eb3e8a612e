"""Commands that ask the service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.contextfile import reason_without_cloud, with_context
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.terminal import complain, counting
from orchestrator.errors import Missing
from orchestrator.settings import load
from orchestrator.wire.domains import Enforced

if TYPE_CHECKING:
    from orchestrator.client import Client

_LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0
"""So long a command tries again by itself where the service is busy, or asks to come back in a few seconds."""


@contextmanager
def service(url: str | None) -> Iterator[Client]:
    """Open a client of the service at `url`, or of the configured one.

    The settings or the context say which that is. Raises Missing without a token.
    """
    settings = with_context(load(), url)
    if not settings.token:
        cloud = reason_without_cloud()
        raise Missing(
            f"{cloud}{'; ' if cloud else ''}the service wants a token: put it into the environment, or use `aclflow "
            "context add`; the first token is made on the service's machine: aclflow db token --role admin",
            place="ACLFLOW_TOKEN",
        )
    from orchestrator.client import Client  # noqa: PLC0415 - a check of a file asks no service

    with Client(
        settings.url,
        settings.token,
        authority=settings.authority,
        patience_s=_PATIENCE_S,
        plain_http=settings.plain_http,
    ) as client:
        yield client


def wait_enforced(client: Client, domain: str, generation: int, timeout_s: float) -> Enforced:
    """Wait until all hosts hold a generation, or the time is over.

    A progress bar shows the hosts that are behind.
    """
    until = time.monotonic() + timeout_s
    state = client.domains.read_generation(domain, generation)
    most = len(state.laggards)
    with counting(f"generation {generation}", most) as tell:
        while not state.done and (left := until - time.monotonic()) > 0:
            state = client.domains.wait_until_enforced(domain, generation, timeout_s=min(left, _LOOK_EVERY_S))
            tell(most - len(state.laggards))
    return state


def end_unless_enforced(state: Enforced, timeout_s: float) -> None:
    """Name the hosts that are behind and end with 1, if there are any."""
    if state.done:
        return
    for each in state.laggards:
        why = f": {each.error}" if each.error else ""
        how = each.word if each.state is None else f"is {each.word}, at generation {each.generation or 0}"
        complain(f"{each.host or 'a host'} {how}{why}")
    complain(f"generation {state.generation} is not in force on every host after {timeout_s:g} s")
    raise typer.Exit(ANSWER_IS_NO)

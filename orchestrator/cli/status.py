"""`aclflow status`: how the whole service is, for operators."""

from __future__ import annotations

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.terminal import say, say_json, say_table

_ANSWER_IS_NO = 1


@taking
def status(url: Url = None, as_json: AsJson = False) -> None:
    """Show what is behind, silent, drifted or refused, which quotas and certificates come to their end, and what helps.

    Ends with 1 if there is anything. For operators.
    """
    with service(url) as client:
        found = client.status()
    if as_json:
        say_json(found)
    elif found.concerns:
        rows = ((one.kind, one.domain, one.text, one.command) for one in found.concerns)
        say_table(("what", "domain", "says", "try"), rows)
    else:
        say(f"all is in force: domains {found.domains}, hosts {found.hosts}, tenants {found.tenants}")
    if found.concerns:
        raise typer.Exit(_ANSWER_IS_NO)

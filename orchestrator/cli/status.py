"""`aclflow status`: how the whole service is, for operators."""

from __future__ import annotations

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say


@taking
def status(shown: Shown, url: Url = None) -> None:
    """Show problems of the whole service, and the commands that help.

    They are hosts that are behind, silent, drifted or refused, quotas with 80 % used or one left, and certificates that
    end soon. Ends with 1 if there is anything. For operators.
    """
    with service(url) as client:
        found = client.read_status()
    if found.concerns or not shown.is_for_people:
        rows = ((one.kind, one.domain, one.text, one.command) for one in found.concerns)
        shown.say(found, ("what", "domain", "says", "try"), rows)
    else:
        say(f"all is in force: domains {found.domains}, hosts {found.hosts}, tenants {found.tenants}")
    if shown.is_for_people:
        last = found.last_backup
        remark(f"last backup: {last:%Y-%m-%d %H:%M} UTC" if last else "no backup is known (`aclflow db backup FILE`)")
    if found.concerns:
        raise typer.Exit(ANSWER_IS_NO)

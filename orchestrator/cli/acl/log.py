"""`aclflow acl log` and `domain log`: packets that rules with `log` decided.

The latter also says how many are reported.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.proposal import as_it_was_shown
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, DomainName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import say, say_json
from orchestrator.client import Client
from orchestrator.client.packetlog import end_of
from orchestrator.errors import BadInput
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.protocols import format_protocol

_LOOK_EVERY_S = 0.5
_HEAD = ("time", "tenant", "rule", "verdict", "host", "protocol", "source", "destination", "octets")


class Verdict(Enum):
    """Decisions of rules."""

    PERMIT = "permit"
    DENY = "deny"


@taking
def packet_log(
    tenant: Annotated[
        str | None,
        typer.Argument(metavar="TENANT", help="The tenant whose rules they are.", autocompletion=complete.tenants),
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option("--domain", "-d", help="All rules of a domain instead.", autocompletion=complete.domains),
    ] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", help="Only what this rule decided.", autocompletion=complete.rules)
    ] = None,
    action: Annotated[Verdict | None, typer.Option("--action", help="Only what was permitted, or denied.")] = None,
    last: Annotated[int, typer.Option("--last", min=1, max=1000, help="So many of the newest.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")] = False,
    *,
    shown: Shown,
    url: Url = None,
) -> None:
    """Show packets that rules with `log` decided, oldest first.

    With --follow, --json prints one object a line. Switches report some packets: `aclflow domain log show` says how
    many.
    """
    if (tenant is None) == (domain is None):
        raise BadInput("say whose rules: a tenant, or --domain for all of a domain's", place="TENANT")
    asked: dict[str, Any] = {"domain": domain, "rule": rule, "action": action.value if action is not None else None}
    with service(url) as client:
        found = client.packet_log.read(tenant, limit=last, **asked)
        if not follow:
            shown.say([*found], _HEAD, map(_make_cells, found))
            return
        _follow_log(client, tenant, asked, found, as_json=shown.is_document)


def _follow_log(client: Client, tenant: str | None, asked: Mapping[str, Any], found: Any, *, as_json: bool) -> None:
    read = 0
    while True:
        for record in found:
            read = int(record["id"])
            say(
                json.dumps(record, ensure_ascii=False) if as_json else "  ".join(map(str, _make_cells(record))),
                flush=True,
            )
        time.sleep(_LOOK_EVERY_S if not found else 0)
        found = client.packet_log.read(tenant, after=read, limit=1000, **asked)


@taking
def show_limit(domain: DomainName, url: Url = None, as_json: AsJson = False) -> None:
    """Show how many packets each switch reports of each tenant whose rules log."""
    with service(url) as client:
        _say_limit(client.packet_log.read_limit(domain).limit, as_json=as_json)


@taking
def set_limit(
    domain: DomainName,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Packets a second, of each tenant.")] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="Packets at once after a silence.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say how many packets each switch reports of each tenant whose rules log.

    An option that is left out changes nothing.
    """
    if rate is None and burst is None:
        raise BadInput(f"say --rate, --burst or both; `aclflow domain log show {domain}` shows what is so now")
    with service(url) as client:
        seen = client.packet_log.read_limit(domain)
        now = seen.limit
        wanted = LogLimit(rate if rate is not None else now.rate, burst if burst is not None else now.burst)
        with as_it_was_shown("the limit was changed meanwhile"):
            written = client.packet_log.set_limit(domain, wanted, etag=seen.etag)
        _say_limit(written, as_json=as_json)


def _say_limit(limit: LogLimit, *, as_json: bool) -> None:
    if as_json:
        say_json({"rate": limit.rate, "burst": limit.burst})
    else:
        say(f"each switch reports {limit.rate} packets a second of each tenant, and {limit.burst} at once")


def _make_cells(record: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        record["time"],
        record["tenant"] or "(operator)",
        record["rule"],
        record["action"],
        record["host"],
        format_protocol(record["protocol"]),
        end_of(record, "source"),
        end_of(record, "destination"),
        record["octets"],
    )

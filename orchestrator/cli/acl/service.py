"""`aclflow acl apply`, `review`, `show` and `versions`: a tenant's list at the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.cost import say_cost
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.files import File, Output, read_file, refuse_losses, whole, write_output
from orchestrator.cli.names import OfTenant, TenantName
from orchestrator.cli.options import AsJson, Reading, Url, taking
from orchestrator.cli.tenant_lists import say_change
from orchestrator.cli.terminal import at_work, say, say_json, say_table
from orchestrator.client import Review
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.model import Rule
from orchestrator.policy.protocols import format_protocol

_ANSWER_IS_NO = 1
_COLUMNS = ("id", "direction", "action", "protocol", "source", "destination")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a change is followed."""

    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every host holds it.")] = True
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="How long to wait, in seconds.")] = 30.0


@taking
def apply(
    name: File, tenant: OfTenant, reading: Reading, waiting: Waiting, url: Url = None, as_json: AsJson = False
) -> None:
    """Make a file a tenant's list and wait until it is enforced.

    Ends with 1 if the list is refused, or is not enforced on every host in time; then it is still the tenant's list,
    and the hosts that lag are named.
    """
    acl = whole(read_file(name, reading), reading)
    with service(url) as client:
        domain = client.tenant(tenant).domain
        with at_work(f"sending {len(acl.rules)} rules"):
            written = client.put_acl(tenant, acl)
        state = wait_enforced(client, domain, written.generation, waiting.timeout) if waiting.wait else None
    if as_json:
        say_json(
            {
                "tenant": tenant,
                "version": written.version,
                "generation": written.generation,
                "changed": written.changed,
                "enforced": state.done if state else None,
            }
        )
    else:
        what = f"version {written.version}" + ("" if written.changed else ", as it was")
        held = ", enforced on every host" if state and state.done else ""
        say(f"{tenant}: {what}, generation {written.generation}{held}")
    if state:
        end_unless_enforced(state, waiting.timeout)


@taking
def review(name: File, tenant: OfTenant, reading: Reading, url: Url = None, as_json: AsJson = False) -> None:
    """Try a file against a tenant's list without changing it.

    Shows what is wrong with it, what it costs a switch, and a packet for each set of packets that would fare otherwise.
    Ends with 1 if there are findings or differences.
    """
    acl = whole(read_file(name, reading), reading)
    with service(url) as client, at_work(f"trying {len(acl.rules)} rules"):
        found = client.check_acl(tenant, acl)
    if as_json:
        findings = [
            {"kind": one.kind, "rules": one.rules, "witness": one.witness, "explanation": one.explanation}
            for one in found.findings
        ]
        say_json({"findings": findings, "cost": found.cost, "difference": found.difference})
    else:
        _say_review(found)
    if found.findings or found.difference or not _comparable(found):
        raise typer.Exit(_ANSWER_IS_NO)


@taking
def show(
    tenant: TenantName,
    version: Annotated[int | None, typer.Option("--version", min=0, help="As it was at this version.")] = None,
    to: Annotated[
        str | None,
        typer.Option("--format", "-f", help="Print it in this format.", autocompletion=complete.formats),
    ] = None,
    output: Output = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's list."""
    with service(url) as client:
        acl = client.acl(tenant, version=version).acl
    if to is None and not as_json and output is None:
        say_table((*_COLUMNS, "more"), map(_row, acl.rules))
        say(f"by default ingress {acl.ingress_default.value}, egress {acl.egress_default.value}")
        return
    exported = write(acl, to or "native")
    refuse_losses(exported.losses, approximate=False, what=f"{to} cannot say all of it")
    write_output(exported.text, output)


@taking
def versions(tenant: TenantName, url: Url = None, as_json: AsJson = False) -> None:
    """Show the history of a tenant's list, newest first."""
    with service(url) as client:
        found = list(client.acl_versions(tenant))
    if as_json:
        say_json(found)
        return
    say_table(
        ("version", "author", "created", "rules"),
        ((one.version, one.author, f"{one.created:%Y-%m-%d %H:%M:%S}", one.rules) for one in found),
    )


def _say_review(found: Review) -> None:
    for one in found.findings:
        say(f"{one.kind}: {one.explanation}", colour="yellow")
    for change in found.difference or ():
        say_change(change)
    if not _comparable(found):
        say("it has next to nothing in common with the list as it is", colour="yellow")
    if found.cost is not None:
        say_cost(found.cost)


def _comparable(found: Review) -> bool:
    """Whether the service compared the lists; it does not where they have next to nothing in common."""
    compared: object = found.difference
    return compared is not None


def _row(rule: Rule) -> tuple[str, ...]:
    more = {key: value for key, value in rule_to_json(rule).items() if key not in _COLUMNS}
    return (
        rule.id,
        rule.direction.value,
        rule.action.value,
        "any" if rule.protocol is None else format_protocol(rule.protocol),
        str(rule.source),
        str(rule.destination),
        ", ".join(f"{key} {_words(value)}" for key, value in more.items()),
    )


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)

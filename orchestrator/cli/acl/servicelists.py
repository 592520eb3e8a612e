"""`aclflow acl apply`, `confirm`, `revert`, `restore`, `review`, `show`, `versions`: a list at the service."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.acl.convert import NATIVE
from orchestrator.cli.acl.cost import say_cost
from orchestrator.cli.acl.diff import say_change
from orchestrator.cli.acl.proposal import Asking, as_it_was_shown, base_of, is_agreed, propose
from orchestrator.cli.acl.traffic import MOST_HOURS, say_traffic
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.files import LiveList, read_file, refuse_losses, whole, write_output
from orchestrator.cli.options import AsJson, Reading, TenantName, Url, taking
from orchestrator.cli.tables import Form, Shown
from orchestrator.cli.terminal import at_work, remark, say, say_json, several
from orchestrator.client import Client, Review, Written
from orchestrator.errors import BadInput
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.formats.registry import FORMATS, write
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.protocols import format_protocol

_FORMS = frozenset(form.value for form in Form)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LONGEST_S = 86_400
_SEVERITY_COLOURS = {"error": "red", "warning": "yellow", "note": None}
_MEMBERS = {"destination_ports": "port", "source_ports": "source port"}
_COLUMNS = ("id", "direction", "action", "protocol", "source", "destination")


LaterFile = Annotated[
    str | None, typer.Argument(metavar="FILE", help="An access list; - is standard input.", show_default=False)
]
FormerTenant = Annotated[str | None, typer.Option("--tenant", "-t", hidden=True)]
"""How the tenant was named before it became an argument."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a change is followed."""

    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every host holds it.")] = True
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="How long to wait, in seconds.")] = 30.0


Despite = Annotated[
    bool, typer.Option("--despite-expectations", help="Write it although it breaks what is expected of the list.")
]


@dataclass(frozen=True, slots=True)
class Writing:
    """Conditions of a write: its base, and what it may break."""

    base_version: Annotated[
        int | None,
        typer.Option(
            "--base-version", min=0, help="The version that FILE was edited from.", autocompletion=complete.versions
        ),
    ] = None
    despite: Despite = False
    confirm: Annotated[
        str | None,
        typer.Option("--confirm", metavar="TIME", help="Take it back after 30s, 5m or 2h unless it is confirmed."),
    ] = None

    @property
    def confirm_s(self) -> int | None:
        """Seconds until the change goes back by itself; None: it stays. Raises BadInput."""
        if self.confirm is None:
            return None
        found = re.fullmatch(r"(\d{1,5})([smh]?)", self.confirm)
        if found is None or not 10 <= (seconds := int(found[1]) * _UNITS[found[2]]) <= _LONGEST_S:
            raise BadInput(f"'{self.confirm}' is not a time from 10s to 24h, such as 30s, 5m or 2h", place="--confirm")
        return seconds


@taking
def apply(
    tenant: TenantName,
    reading: Reading,
    waiting: Waiting,
    asking: Asking,
    writing: Writing,
    name: LaterFile = None,
    former: FormerTenant = None,
    as_json: AsJson = False,
) -> None:
    """Make a file a tenant's list, and wait until it is in force.

    Its changes are shown first.

    A file of `aclflow acl show` or `export` states the version that it was taken from (or say --base-version):
    changes that others made since then are kept where they do not touch yours, else nothing is changed. Without a base
    the file replaces the list as it is. On a terminal you are asked before anything changes; elsewhere say --yes.

    Ends with 1 if the list is refused, does not merge, or is not in force on every host in time; then it is still the
    tenant's list, and the hosts that are behind are named.
    """
    file = _file(former, tenant, name, "apply", reading.format)
    asking.check()
    confirm_s = writing.confirm_s
    read = read_file(file, reading)
    acl = whole(read, reading)
    base = base_of(read.imported.taken_from, writing.base_version, tenant, f"{read.name}: taken_from")
    with service(reading.url) as client:
        proposal = propose(client, tenant, acl, base)
        if not is_agreed(proposal, asking, f"Change the list of {tenant}?", as_json):
            return
        with at_work(f"sending {len(proposal.acl.rules)} rules"), as_it_was_shown():
            written = client.acls.put(
                tenant,
                proposal.acl,
                etag=proposal.current.etag,
                comment=asking.message,
                despite=writing.despite,
                confirm_s=confirm_s,
            )
        if confirm_s is not None and written.changed:
            remark(f"it goes back in {writing.confirm} by itself, unless: aclflow acl confirm {tenant}")
        follow(client, tenant, written, waiting, as_json=as_json)


@taking
def confirm(tenant: TenantName, url: Url = None, as_json: AsJson = False) -> None:
    """Keep a change that `aclflow acl apply --confirm` made.

    Ends with 1 where none waits: it may have gone back.
    """
    with service(url) as client:
        written = client.acls.confirm(tenant)
    if as_json:
        say_json({"tenant": tenant, "version": written.version, "generation": written.generation})
    else:
        say(f"{tenant}: version {written.version} is confirmed")


@taking
def revert(tenant: TenantName, waiting: Waiting, url: Url = None, as_json: AsJson = False) -> None:
    """Take back a change that waits to be confirmed, at once."""
    with service(url) as client:
        follow(client, tenant, client.acls.revert(tenant), waiting, as_json=as_json)


def follow(client: Client, tenant: str, written: Written, waiting: Waiting, *, as_json: bool) -> None:
    """Print the outcome of a change, once it is in force or time is over.

    Ends with 1 where hosts are behind.
    """
    if written.proposal is not None and not as_json:
        name = written.proposal.id[:8]
        say(f"{tenant}: nothing has changed yet: another person must approve proposal {name}")
        remark(f"aclflow proposal show {tenant} {name}")
    if written.proposal is not None:
        if as_json:
            say_json({"tenant": tenant, "changed": False, "proposal": written.proposal})
        return
    domain = client.tenants.read(tenant).domain
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
        held = f", {state.describe_done()}" if state and state.done else ""
        say(f"{tenant}: {what}, generation {written.generation}{held}")
    if state:
        end_unless_enforced(state, waiting.timeout)


def _file(former: str | None, tenant: str, name: str | None, verb: str, format_name: str | None) -> str:
    """Return the file that a command is given. Raises BadInput.

    For the old way of naming the tenant, the error tells the new one.
    """
    if former is not None:
        raise BadInput(f"the tenant comes first now: aclflow acl {verb} {former} {tenant}", place="--tenant")
    if name is None and format_name is not None and format_name not in FORMATS:
        raise BadInput(f"-f names a format; the file comes last: aclflow acl {verb} {tenant} {format_name}", place="-f")
    if name is None:
        raise BadInput(f"a file is missing: aclflow acl {verb} {tenant} FILE (- is standard input)", place="FILE")
    return name if LiveList.from_name(name) is None else f"./{name}"


@taking
def restore(
    tenant: TenantName,
    version: Annotated[int, typer.Argument(min=0, help="A version of the list.", autocompletion=complete.versions)],
    waiting: Waiting,
    asking: Asking,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Restore a list to a version, and wait until it is in force.

    The changes are shown first.

    The list becomes a new version. Rules whose time is over are left out.
    """
    asking.check()
    with service(url) as client:
        wanted = without_past(client.acls.read(tenant, version=version).acl, dt.datetime.now(dt.UTC))
        proposal = propose(client, tenant, wanted, None)
        if not is_agreed(proposal, asking, f"Make the list of {tenant} what it was at version {version}?", as_json):
            return
        with as_it_was_shown():
            written, left_out = client.acls.restore(tenant, version, etag=proposal.current.etag, comment=asking.message)
        if left_out:
            remark(f"left out, for their time is over: {', '.join(left_out)}")
        follow(client, tenant, written, waiting, as_json=as_json)


@taking
def review(
    tenant: TenantName,
    reading: Reading,
    name: LaterFile = None,
    former: FormerTenant = None,
    traffic_hours: Annotated[
        int | None,
        typer.Option(
            "--traffic",
            min=1,
            max=MOST_HOURS,
            metavar="HOURS",
            help="Put packets recorded in so many hours to it: what of them would it newly permit or refuse?",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try a file against a tenant's list without changing it.

    Shows which findings the change brings, what the list costs a switch, and a packet for each set of packets that
    would fare otherwise. With --traffic it also shows what of the traffic that the tenant's rules with `log` recorded
    would fare otherwise, by rule and by peer. Ends with 1 if it brings an error or a warning, or if there are
    differences.
    """
    acl = whole(read_file(_file(former, tenant, name, "review", reading.format), reading), reading)
    with service(reading.url) as client, at_work(f"trying {len(acl.rules)} rules"):
        found = client.acls.check(tenant, acl)
        traffic = None if traffic_hours is None else client.acls.check_traffic(tenant, acl, hours=traffic_hours)
    if as_json:
        counts = {"in_all": found.severities, "waived": len(found.waived)}
        told = {"findings": found.brought, **counts, "cost": found.cost, "difference": found.difference}
        say_json(told if traffic is None else told | {"traffic": asdict(traffic)})
    else:
        _say_review(found)
        if traffic is not None:
            say_traffic(traffic)
    if not {"error", "warning"}.isdisjoint(found.brought_severities) or found.difference or not _comparable(found):
        raise typer.Exit(ANSWER_IS_NO)


@taking
def show(
    tenant: Annotated[
        str,
        typer.Argument(metavar="TENANT", help="The tenant, or TENANT@VERSION.", autocompletion=complete.tenant_lists),
    ],
    version: Annotated[
        int | None,
        typer.Option("--version", min=0, help="As it was at this version.", autocompletion=complete.versions),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--format", "-f", help="Print it in this format.", autocompletion=complete.formats),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A file to write; or table, wide, json, yaml, csv.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's list, or write it to a file for editing.

    The file can be applied again: it states the version that it was taken from, so that `aclflow acl apply` knows what
    others changed since.
    """
    live = LiveList.from_name(tenant) or LiveList(tenant)
    if version is not None and live.version is not None:
        raise BadInput("TENANT@VERSION says it already", place="--version")
    with service(url) as client:
        seen = client.acls.read(live.tenant, version=version if live.version is None else live.version)
        owner = client.tenants.read(live.tenant)
    acl, force = seen.acl, owner.in_force
    if output in _FORMS and output != Form.JSON.value:
        say_rules(acl.rules, Shown(Form(output)))
        return
    if to is None and not as_json and output is None:
        say_rules(acl.rules, Shown())
        say(f"by default ingress {acl.ingress_default.value}, egress {acl.egress_default.value}")
        say(f"return traffic: {owner.return_traffic}")
        say(
            f"version {force.version} is {force.text()}" if seen.version == force.version else f"version {seen.version}"
        )
        return
    exported = write(acl, to or NATIVE, TakenFrom(live.tenant, seen.version))
    refuse_losses(exported.losses, approximate=False, what=f"{to} cannot say all of it")
    write_output(exported.text, None if output in _FORMS else output)


@taking
def versions(tenant: TenantName, shown: Shown, url: Url = None) -> None:
    """Show the history of a tenant's list, newest first."""
    with service(url) as client:
        found = list(client.acls.read_versions(tenant))
        force = client.tenants.read(tenant).in_force
    shown.say(
        found,
        ("version", "created", "author", "rules", "changes", "comment"),
        (
            (
                one.version,
                f"{one.created:%Y-%m-%d %H:%M:%S}",
                one.by(),
                one.rules,
                one.changes.text() if one.changes else "",
                one.comment,
            )
            for one in found
        ),
    )
    if not shown.is_document:
        remark(f"version {force.version} is {force.text()}")


def without_past(acl: Acl, now: dt.datetime) -> Acl:
    """The list without rules whose time is over."""
    return replace(acl, rules=tuple(rule for rule in acl.rules if rule.expires is None or rule.expires > now))


def say_rules(rules: Sequence[Rule], shown: Shown) -> None:
    """Print rules as a table, in their order."""
    shown.say([*map(rule_to_json, rules)], (*_COLUMNS, "more"), map(_make_row, rules))


def _say_review(found: Review) -> None:
    for one in found.brought:
        say(f"{one.severity}, {one.kind}: {one.explanation} ({one.reason})", colour=_SEVERITY_COLOURS[one.severity])
    if found.severities and not found.brought:
        words = ", ".join(several(count, severity) for severity, count in found.severities.items())
        remark(f"the change brings no findings; the list has {words}, see `aclflow acl check`")
    for change in found.difference or ():
        say_change(change)
    if not _comparable(found):
        say("it has next to nothing in common with the list as it is", colour="yellow")
    if found.cost is not None:
        say_cost(found.cost)


def _comparable(found: Review) -> bool:
    """Return whether the service compared the lists.

    It does not where they have next to nothing in common.
    """
    compared: object = found.difference
    return compared is not None


def _make_row(rule: Rule) -> tuple[str, ...]:
    more = {key: value for key, value in rule_to_json(rule).items() if key not in _COLUMNS}
    return (
        rule.id,
        rule.direction.value,
        rule.action.value,
        "any" if rule.protocol is None else format_protocol(rule.protocol),
        str(rule.source),
        str(rule.destination),
        ", ".join(_member_words(rule, key, value) for key, value in more.items()),
    )


def _member_words(rule: Rule, key: str, value: object) -> str:
    """One more member of a rule, as the options of `aclflow acl rule` call it."""
    if rule.expires is not None and key == "expires":
        return f"until {rule.expires:%Y-%m-%d %H:%M} UTC"
    words = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{_MEMBERS.get(key, key)} {words}"

"""`aclflow domain`: security domains, their hosts, endpoints and enforcers, and tokens to enrol with."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.options import AsJson, DomainName, HostName, Url, prefix_of, taking
from orchestrator.cli.tables import Line, Report, Shown, Table
from orchestrator.cli.terminal import remark, say, say_json
from orchestrator.client import Host
from orchestrator.errors import BadInput
from orchestrator.hosts.switch import datapath_of
from orchestrator.policy.addresses import read_mac
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, PATH_MTU_RATE, Endpoint, ReturnTraffic, TenantId
from orchestrator.wire.domains import Domain

EndpointName = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="The endpoint's name.", autocompletion=complete.endpoints)
]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z", re.IGNORECASE)


_ENDPOINT_COLUMNS = ("endpoint", "tenant", "port", "mac", "prefixes")

_SETTINGS = {"ack": ReturnTraffic.ESTABLISHED} | {setting.value: setting for setting in ReturnTraffic}
"""The choices for how replies come back in; `established` is the service's own word for `ack`."""
DatapathId = Annotated[
    str | None,
    typer.Option(
        "--datapath-id",
        help="Of its bridge, up to 16 hexadecimal digits; by default the one that `aclflow host configure` gives it.",
    ),
]
_DIGITS = re.compile(r"(0x)?[0-9a-f]{1,16}\Z", re.IGNORECASE)
CloudGroup = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name in the domain's cloud.")]


def _read_setting(word: str) -> ReturnTraffic:
    try:
        return _SETTINGS[word]
    except KeyError:
        raise BadInput(f"'{word}' is none of {', '.join(_SETTINGS)}", place="--established") from None


def _returns_text(domain: Domain) -> str:
    limit = f" (at most {domain.path_mtu_rate} messages a second and tenant)"
    return domain.return_traffic + (limit if domain.return_traffic == ReturnTraffic.PATH_MTU.value else "")


_RETURN_TRAFFIC = typer.Option(
    "--established",
    "--return-traffic",
    metavar="established|path-mtu|tracked|explicit",
    help="How replies come back in: `established` (or `ack`), TCP segments that look like replies; `path-mtu`, the "
    "same, and from anybody to any endpoint ICMP errors that say which size of packet a path takes, forged ones "
    "among them, up to --path-mtu-rate; `tracked`, as packets of a connection that the lists permit; "
    "`explicit`, by rules alone.",
    autocompletion=lambda: ["established", "path-mtu", "tracked", "explicit"],
)
Established = Annotated[str, _RETURN_TRAFFIC]

PathMtuRate = Annotated[
    int | None,
    typer.Option(
        "--path-mtu-rate",
        metavar=f"1..{HIGHEST_PATH_MTU_RATE}",
        min=1,
        max=HIGHEST_PATH_MTU_RATE,
        help="Under `path-mtu`: how many of these ICMP errors a switch or firewall VNF lets through a second "
        f"to each tenant ({PATH_MTU_RATE} in a new domain).",
    ),
]


@taking
def create(
    domain: DomainName, return_traffic: Established = "established", path_mtu_rate: PathMtuRate = None, url: Url = None
) -> None:
    """Make a domain."""
    with service(url) as client:
        setting = _read_setting(return_traffic)
        made = client.domains.create(domain, return_traffic=setting, path_mtu_rate=path_mtu_rate)
    say(f"domain {made.id}, return traffic {_returns_text(made)}")


@taking
def configure(
    domain: DomainName,
    return_traffic: Annotated[str | None, _RETURN_TRAFFIC] = None,
    path_mtu_rate: PathMtuRate = None,
    url: Url = None,
) -> None:
    """Set how a domain lets replies in; what is not given stays.

    Replies stop while its hosts go over to tracking connections, or from it. Connections that were there before are
    not known then, and are cut.
    """
    if return_traffic is None and path_mtu_rate is None:
        raise BadInput("say --return-traffic, --path-mtu-rate or both")
    with service(url) as client:
        setting = _read_setting(return_traffic) if return_traffic is not None else None
        changed = client.domains.set_return_traffic(domain, setting, path_mtu_rate=path_mtu_rate)
    say(f"domain {changed.id}, return traffic {_returns_text(changed)}, from generation {changed.generation} on")
    if changed.untracked:
        remark(f"replies are let in by ACK alone at: {', '.join(changed.untracked)}")


@taking
def list_all(shown: Shown, url: Url = None) -> None:
    """List the domains."""
    with service(url) as client:
        found = list(client.domains.read_all())
    rows = ((one.id, one.return_traffic, one.generation) for one in found)
    shown.say(found, ("domain", "return traffic", "generation"), rows)


@taking
def show(domain: DomainName, report: Report, url: Url = None) -> None:
    """Show a domain's hosts, endpoints and enforcers, and whether its newest generation is in force."""
    with service(url) as client:
        seen = client.domains.read(domain)
        hosts, endpoints, enforcers = (
            client.domains.read_hosts(domain),
            client.domains.read_endpoints(domain),
            client.points.read_all(domain),
        )
        state = client.domains.read_generation(domain, seen.generation)
    document = {
        **asdict(seen),
        "enforced": state.done,
        "laggards": state.laggards,
        "hosts": [host.to_json() for host in hosts],
        "endpoints": [*map(_write_endpoint, endpoints)],
        "enforcers": enforcers,
    }
    late = {each.host: each.word + (f": {each.error}" if each.error else "") for each in state.laggards}
    untracked = [Line(f"replies are let in by ACK alone at: {', '.join(seen.untracked)}")] if seen.untracked else []
    heading = f"domain {seen.id}, return traffic {_returns_text(seen)}, generation {seen.generation}"
    host_rows = [(one.name, f"{one.datapath_id:016x}", one.uplink, late.get(one.name, "in force")) for one in hosts]
    last_seen = [f"{one.last_seen:%Y-%m-%d %H:%M:%S}" if one.last_seen else "never" for one in enforcers]
    enforcer_rows = [(one.name, one.kind, one.epoch, at) for one, at in zip(enforcers, last_seen, strict=True)]
    parts: tuple[Line | Table, ...] = (
        Line(heading, bold=True),
        *untracked,
        Table("hosts", ("host", "datapath id", "uplink", "state"), host_rows),
        Table("endpoints", _ENDPOINT_COLUMNS, map(_make_endpoint_row, endpoints)),
        Table("enforcers", ("enforcer", "kind", "epoch", "last seen"), enforcer_rows),
    )
    report.say(document, parts)


@taking
def list_hosts(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List a domain's hosts, and which are behind."""
    with service(url) as client:
        hosts = client.domains.read_hosts(domain)
        state = client.domains.read_generation(domain, client.domains.read(domain).generation)
    late = {each.host: each.word for each in state.laggards}
    shown.say(
        [{**host.to_json(), "state": late.get(host.name, "in force")} for host in hosts],
        ("host", "datapath id", "uplink", "state"),
        ((one.name, f"{one.datapath_id:016x}", one.uplink, late.get(one.name, "in force")) for one in hosts),
    )


@taking
def list_endpoints(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List where the network ports of a domain's tenants are."""
    with service(url) as client:
        found = client.domains.read_endpoints(domain)
    shown.say([*map(_write_endpoint, found)], _ENDPOINT_COLUMNS, map(_make_endpoint_row, found))


@taking
def delete(domain: DomainName, url: Url = None) -> None:
    """Delete a domain that has no hosts and no tenants."""
    with service(url) as client:
        client.domains.delete(domain)
    say(f"domain {domain} is gone")


@taking
def add_host(
    domain: DomainName,
    host: HostName,
    uplink: Annotated[str, typer.Option("--uplink", help="The bridge's interface towards the edge.")],
    datapath_id: DatapathId = None,
    url: Url = None,
) -> None:
    """Bring a host into a domain."""
    number = datapath(datapath_id, domain, host)
    with service(url) as client:
        generation = client.domains.add_host(domain, Host(host, number, uplink))
    say(f"host {host} belongs to {domain} from generation {generation} on")


@taking
def remove_host(domain: DomainName, host: HostName, url: Url = None) -> None:
    """Take a host out of a domain."""
    with service(url) as client:
        client.domains.remove_host(domain, host)
    say(f"host {host} does not belong to {domain} any more")


@taking
def add_endpoint(
    domain: DomainName,
    endpoint: EndpointName,
    tenant: Annotated[
        str,
        typer.Option(
            "--tenant", "-t", help="The person or team that answers for the rule.", autocompletion=complete.tenants
        ),
    ],
    port: Annotated[str, typer.Option("--port", help="The interface on its host's bridge.")],
    mac: Annotated[str, typer.Option("--mac", help="Its address, as in 02:00:00:00:00:01.")],
    prefix: Annotated[list[str], typer.Option("--prefix", help="An address or prefix that it may use.")],
    shared: Annotated[
        bool, typer.Option("--shared", help="Other endpoints of the tenant may live behind the same interface.")
    ] = False,
    url: Url = None,
) -> None:
    """Say where a tenant's network port is."""
    if not _MAC.match(mac):
        raise BadInput(f"'{mac}' is not a MAC address", place="--mac")
    prefixes = tuple(prefix_of(text, "--prefix") for text in prefix)
    number = read_mac(mac)
    with service(url) as client:
        written = client.domains.put_endpoint(
            domain, Endpoint(endpoint, TenantId(tenant), port, number, prefixes, shared)
        )
    say(f"endpoint {endpoint} is known from generation {written.generation} on")


@taking
def remove_endpoint(domain: DomainName, endpoint: EndpointName, url: Url = None) -> None:
    """Forget a tenant's network port."""
    with service(url) as client:
        generation = client.domains.remove_endpoint(domain, endpoint)
    say(f"endpoint {endpoint} is gone with generation {generation}")


@taking
def wait(
    domain: DomainName,
    generation: Annotated[
        int | None, typer.Argument(min=0, show_default=False, help="The domain's newest by default.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="How long to wait, in seconds.")] = 30.0,
    url: Url = None,
) -> None:
    """Wait until every host holds a generation.

    Ends with 1, naming the hosts that are behind then.
    """
    with service(url) as client:
        wanted = client.domains.read(domain).generation if generation is None else generation
        state = wait_enforced(client, domain, wanted, timeout)
    end_unless_enforced(state, timeout)
    say(f"{domain}: generation {state.generation} is {state.describe_done()}")


def _make_endpoint_row(endpoint: Endpoint) -> tuple[str, ...]:
    return (
        endpoint.name,
        endpoint.tenant,
        endpoint.port,
        endpoint.mac.to_bytes(6, "big").hex(":"),
        " ".join(map(str, endpoint.prefixes)),
    )


def _write_endpoint(endpoint: Endpoint) -> dict[str, object]:
    name, tenant, port, mac, _ = _make_endpoint_row(endpoint)
    prefixes = [*map(str, endpoint.prefixes)]
    return {"name": name, "tenant": tenant, "port": port, "mac": mac, "prefixes": prefixes, "shared": endpoint.shared}


def datapath(said: str | None, domain: str, name: str) -> int:
    """A switch's datapath id, from what was said or its domain and name. Raises BadInput."""
    if said is None:
        return datapath_of(domain, name)
    if not _DIGITS.match(said):
        raise BadInput(f"'{said}' is not up to 16 hexadecimal digits", place="--datapath-id")
    return int(said, 16)


@taking
def invite(
    domain: DomainName,
    lasts: Annotated[int, typer.Option("--lasts", min=1, help="How long it may be used, in seconds.")] = 3600,
    name: Annotated[str | None, typer.Option("--name", help="Only an enforcer of this name may use it.")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only this kind: openflow, nftables, iptables, queue, switch.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="With --kind openflow: only for this switch; may be repeated.", autocompletion=complete.hosts
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a one-time token for an enforcer to enrol with. It is shown only now.

    Of a service that speaks TLS it carries the fingerprint of the service's authority: whoever has the token knows
    whom to believe.
    """
    with service(url) as client:
        token = client.enrolment.invite(domain, lasts_s=lasts, name=name, kind=kind, hosts=host or ())
    if as_json:
        say_json({"domain": domain, "token": token, "name": name, "kind": kind, "hosts": host or []})
    else:
        say(token)


@taking
def invite_group(
    domain: DomainName,
    group: CloudGroup,
    kind: Annotated[
        str, typer.Option("--kind", help="The kind of the machines: nftables, iptables, queue.")
    ] = "nftables",
    lasts: Annotated[int, typer.Option("--lasts", min=1, help="How long it may be used, in seconds.")] = 86400,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a token that the machines of a group enrol with.

    It is for the user data that they share, and is shown only now. Each instance is admitted once, and only if the
    domain's cloud has it in the group with the address that it comes from.
    """
    with service(url) as client:
        made = client.enrolment.invite_group(domain, group, kind=kind, lasts_s=lasts)
    if as_json:
        expires = made.expires.isoformat()
        say_json({"id": made.id, "domain": domain, "group": group, "token": made.token, "expires": expires})
    else:
        say(made.token)


@taking
def list_groups(domain: DomainName, shown: Shown, url: Url = None) -> None:
    """List the tokens of groups that still hold, without their secrets."""
    with service(url) as client:
        rows = [
            (each.id, each.group, each.kind, each.expires.isoformat())
            for each in client.enrolment.read_group_tokens(domain)
        ]
    columns = ("id", "group", "kind", "expires")
    shown.say([dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


@taking
def remove_group(
    domain: DomainName,
    number: Annotated[
        int,
        typer.Argument(
            metavar="ID",
            min=0,
            help="The token's number; see `aclflow domain group list`.",
            autocompletion=complete.group_tokens,
        ),
    ],
    url: Url = None,
) -> None:
    """Make the token of a group invalid. Machines that were admitted with it stay."""
    with service(url) as client:
        client.enrolment.remove_group_token(domain, number)
    say(f"the token {number} admits nobody any more")

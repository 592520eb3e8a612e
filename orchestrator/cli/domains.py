"""`aclflow domain`: security domains, their hosts, endpoints and enforcers."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import end_unless_enforced, service, wait_enforced
from orchestrator.cli.datapaths import DatapathId, datapath
from orchestrator.cli.names import DomainName, HostName
from orchestrator.cli.options import Url, prefix_of, taking
from orchestrator.cli.tables import Line, Report, Shown, Table
from orchestrator.cli.terminal import remark, say
from orchestrator.client import Host
from orchestrator.errors import BadInput
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, PATH_MTU_RATE, Endpoint, ReturnTraffic, TenantId
from orchestrator.wire.domains import Domain

EndpointName = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="The endpoint's name.", autocompletion=complete.endpoints)
]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z", re.IGNORECASE)


_ENDPOINT_COLUMNS = ("endpoint", "tenant", "port", "mac", "prefixes")

_SETTINGS = {"ack": ReturnTraffic.ESTABLISHED} | {setting.value: setting for setting in ReturnTraffic}
"""The choices for how replies come back in; `established` is the service's own word for `ack`."""


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
    number = int(mac.replace(":", ""), 16)
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

"""`aclflow openstack`: check an OpenStack, its endpoints, and groups that its alarms resize.

The check tells what the service would meet there.

`endpoints` makes a project's virtual machines endpoints of a tenant. They stay endpoints wherever Nova moves them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import AsJson, DomainName, TenantName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import at_work, complain, say, say_json
from orchestrator.client import Client
from orchestrator.client.transport import ANY_VERSION
from orchestrator.cloud.endpoints import Comparison, Legs, Whereabouts, compare_behind_legs, compare_endpoints
from orchestrator.cloud.heat import connect_openstack
from orchestrator.cloud.heat.alarms import TEMPLATE as ALARMS
from orchestrator.cloud.heat.alarms import AlarmGroups, AlarmLimits
from orchestrator.cloud.heat.api import OpenStack
from orchestrator.cloud.heat.fleets import TEMPLATE as FLEET
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.clouds import read_cloud_file
from orchestrator.errors import AclflowError, BadInput, ChangeTheRequest, Forbidden, TryAgain
from orchestrator.policy.model import TenantId
from orchestrator.settings import load
from orchestrator.wire.firewalls import Plane

CloudFile = Annotated[
    Path | None, typer.Option("--cloud", help="The file about the cloud; ACLFLOW_CLOUD by default.", dir_okay=False)
]


@taking
def check(shown: Shown, cloud: CloudFile = None) -> None:
    """Sign in, have Heat validate our templates, and show what the project may still have."""
    with opened_openstack(cloud) as (settings, openstack), at_work("asking OpenStack"):
        flavor = settings.flavor()
        quotas = openstack.quotas(flavor, 0)
        stacks = openstack.stacks(settings.tag)
        for template in (FLEET, ALARMS):
            openstack.validate(template)
    fleets = [settings.fleet_of(stack.name) for stack in stacks]
    if shown.is_for_people:
        say(f"Heat takes {FLEET} and {ALARMS}; {len(stacks)} fleets of this installation are there")
    shown.say(
        {"templates": [FLEET, ALARMS], "fleets": fleets, "quotas": [asdict(quota) for quota in quotas]},
        ("quota", "limit", "used", f"each VNF ({flavor or 'no flavor'})"),
        ((each.what, "none" if each.limit is None else each.limit, each.used, each.each) for each in quotas),
    )


@taking
def alarms_create(
    domain: DomainName,
    fewest: Annotated[int, typer.Option("--fewest", min=0, help="No fewer VNFs.")] = 1,
    most: Annotated[int, typer.Option("--most", min=1, help="No more VNFs.")] = 5,
    cooldown: Annotated[int, typer.Option("--cooldown", min=0, help="Seconds without a further change.")] = 60,
    notice: Annotated[
        int, typer.Option("--notice", min=0, help="Seconds between Heat's choice of who goes, and its end.")
    ] = 30,
    alarms: Annotated[
        bool, typer.Option("--alarms/--webhooks-only", help="Make the cloud's alarms (Aodh on Gnocchi) too.")
    ] = True,
    plane: Annotated[Plane, typer.Option("--plane", help="The packet filter of the VNFs.")] = Plane.NFTABLES,
    url: Url = None,
    cloud: CloudFile = None,
) -> None:
    """Begin to create a group of firewall VNFs that alarms resize.

    Safe to repeat.
    """
    limits = AlarmLimits(fewest, most, cooldown, notice, alarms)
    with _open_groups(cloud) as groups:
        groups.create(domain, url or load().url, plane, limits)
    say(f"Heat creates the group of {domain}: between {fewest} and {most} VNFs")
    say(f"they are adopted once `aclflow fleet set {domain} --size alarms` was said")


@taking
def alarms_show(domain: DomainName, cloud: CloudFile = None, as_json: AsJson = False) -> None:
    """Show how large a group is, and whether something is under way or failed."""
    with _open_groups(cloud) as groups:
        found = groups.show(domain)
    if as_json:
        say_json(asdict(found))
        return
    say(f"{domain}: {found.size} VNFs, between {found.fewest} and {found.most}")
    say("settled" if found.settled else "Heat is at it")
    if found.trouble:
        say(found.trouble, colour="red")


@taking
def alarms_webhooks(domain: DomainName, shown: Shown, cloud: CloudFile = None) -> None:
    """Show the URLs that an alarm posts to. They are secrets.

    Anybody who has one can change the group's size.
    """
    with _open_groups(cloud) as groups:
        urls = groups.webhooks(domain)
    shown.say(asdict(urls), ("policy", "URL"), asdict(urls).items())


@taking
def alarms_grow(domain: DomainName, cloud: CloudFile = None) -> None:
    """Signal a group to grow by one, as an alarm would."""
    with _open_groups(cloud) as groups:
        groups.grow(domain)
    say(f"the group of {domain} was signalled to grow")


@taking
def alarms_shrink(domain: DomainName, cloud: CloudFile = None) -> None:
    """Signal a group to shrink by one, as an alarm would. Heat chooses who goes."""
    with _open_groups(cloud) as groups:
        groups.shrink(domain)
    say(f"the group of {domain} was signalled to shrink")


@taking
def alarms_delete(domain: DomainName, cloud: CloudFile = None) -> None:
    """Begin to delete a group with all its VNFs. Safe to repeat."""
    with _open_groups(cloud) as groups:
        groups.delete(domain)
    say(f"Heat deletes the group of {domain}")


@contextmanager
def _open_groups(cloud: Path | None) -> Iterator[AlarmGroups]:
    with opened_openstack(cloud) as (settings, openstack), at_work("asking Heat"):
        yield AlarmGroups(settings, openstack)


@contextmanager
def opened_openstack(cloud: Path | None, entry: str | None = None) -> Iterator[tuple[HeatSettings, OpenStack]]:
    """Open the OpenStack that a file describes, or another entry of clouds.yaml.

    It is given the time that it needs. Raises BadInput, Missing.
    """
    path = cloud or load().cloud
    if path is None:
        raise BadInput("name the file about the cloud: --cloud, or ACLFLOW_CLOUD", place="--cloud")
    described = read_cloud_file(path)
    try:
        if described.get("kind") != "heat":
            raise BadInput(f"is about a cloud of kind {described.get('kind')!r}, not 'heat'", place="kind")
        settings = HeatSettings.read(described).patient()
    except AclflowError as error:
        raise error.within(str(path)) from None
    openstack = connect_openstack(settings if entry is None else replace(settings, cloud=entry))
    try:
        yield settings, openstack
    finally:
        openstack.close()


@dataclass(frozen=True, slots=True)
class Looking:
    """Options: which project's machines, and with which account."""

    project: Annotated[
        str | None,
        typer.Option("--project", help="The tenant's project, by name or id; called as the tenant by default."),
    ] = None
    entry: Annotated[
        str | None,
        typer.Option("--os-cloud", help="Another entry of clouds.yaml: only administrators see hosts."),
    ] = None
    apply: Annotated[bool, typer.Option("--apply", help="Write what is new or has changed, forget what is gone.")] = (
        False
    )
    follow: Annotated[bool, typer.Option("--follow", help="Go on looking, and tell what changes, until stopped.")] = (
        False
    )
    leg: Annotated[
        list[str] | None,
        typer.Option(
            "--leg", metavar="[HOST=]INTERFACE",
            help="The leg of the VNF-ACL that machines live behind, of one compute host or of all the others.",
        ),
    ] = None  # fmt: skip
    network: Annotated[
        str | None, typer.Option("--network", help="The network that legs lead to; ports of others are left alone.")
    ] = None
    every: Annotated[float, typer.Option("--every", min=0.2, help="With --follow: look so often, in seconds.")] = 2.0

    def legs(self) -> Legs | None:
        """Return the legs, if machines live behind any. Raises BadInput."""
        if bool(self.leg) != (self.network is not None):
            raise BadInput("a leg and the network that it leads to go together", place="--leg, --network")
        named = [text.rpartition("=") for text in self.leg or ()]
        everywhere = [leg for _, between, leg in named if not between]
        if len(everywhere) > 1:
            raise BadInput("only one leg may be of all hosts", place="--leg")
        by_host = {host: leg for host, between, leg in named if between}
        return Legs(by_host, *everywhere) if named else None


@taking
def endpoints(
    tenant: TenantName,
    looking: Looking,
    shown: Shown,
    cloud: CloudFile = None,
    url: Url = None,
) -> None:
    """Compare a tenant's endpoints with the ports of its virtual machines.

    The host of each is shown, too. Ends with 1 where endpoints and ports differ and nothing was written, and where a
    machine is on a host that is not of the domain or, behind legs of VNF-ACLs, on one without a leg.
    """
    legs = looking.legs()
    with opened_openstack(cloud, looking.entry) as (_, openstack), service(url) as client:
        desk = _Desk(client, openstack, TenantId(tenant), looking, legs)
        found = desk.look()
        if not looking.follow:
            refused = desk.write(found) if looking.apply else {}
            _say_comparison(found, refused, shown)
            if found.outside or refused or not (looking.apply or found.is_same):
                raise typer.Exit(ANSWER_IS_NO)
            return
        _follow(desk, looking, shown)


def _follow(desk: _Desk, looking: Looking, shown: Shown) -> None:
    """Compare with OpenStack again and again, and carry out what differs.

    A cloud or a service that does not answer is asked again.
    """
    before: Mapping[str, str | None] | None = None
    told: Mapping[str, str] = {}
    while True:
        try:
            found = desk.look()
            refused = desk.write(found) if looking.apply else {}
        except TryAgain as error:
            complain(str(error))
        else:
            where = {each.endpoint.name: each.host for each in found.where}
            if where != before or refused != told or not found.is_same:
                _say_comparison(found, refused, shown)
            before, told = where, refused
        time.sleep(looking.every)


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where OpenStack and the service are asked about one tenant."""

    client: Client
    openstack: OpenStack
    tenant: TenantId
    looking: Looking
    legs: Legs | None

    def look(self) -> Comparison:
        """Compare OpenStack's ports with the domain's endpoints."""
        domain = self.client.tenants.read(self.tenant).domain
        ports = self.openstack.machine_ports(self.looking.project or self.tenant, self.looking.network)
        known = self.client.domains.read_endpoints(domain)
        if self.legs is not None:
            if self.legs.by_host and ports and not any(port.host for port in ports):
                raise Forbidden("these credentials see no hosts: name an administrator's entry", place="--os-cloud")
            return compare_behind_legs(ports, self.tenant, known, self.legs)
        hosts = [host.name for host in self.client.domains.read_hosts(domain)]
        return compare_endpoints(ports, self.tenant, known, hosts)

    def write(self, found: Comparison) -> Mapping[str, str]:
        """Bring the service to what OpenStack has; which endpoints it does not take, and why."""
        domain = self.client.tenants.read(self.tenant).domain
        known = {each.name for each in self.client.domains.read_endpoints(domain)}
        refused = {}
        for name in found.gone:
            self.client.domains.remove_endpoint(domain, name)
        for endpoint in found.written:
            try:
                self.client.domains.put_endpoint(domain, endpoint, etag=ANY_VERSION if endpoint.name in known else None)
            except ChangeTheRequest as error:  # the others are written all the same
                refused[endpoint.name] = str(error)
        return refused


def _say_comparison(found: Comparison, refused: Mapping[str, str], shown: Shown) -> None:
    new = {endpoint.name for endpoint in found.written}
    rows = [(*_make_row(each), _describe_state(each, new, refused)) for each in found.where]
    shown.say(_write_comparison(found, refused), ("endpoint", "port", "addresses", "host", "state"), rows)
    if not shown.is_for_people:
        return
    for name in found.gone:
        say(f"{name} is no port of OpenStack's any more")
    for each in found.outside:
        complain(f"{each.endpoint.name} is on {each.host}, which {found.lacking}: nobody filters for it there")
    for name, reason in refused.items():
        complain(f"{name}: {reason}")


def _make_row(each: Whereabouts) -> tuple[object, ...]:
    endpoint = each.endpoint
    return (endpoint.name, endpoint.port, " ".join(map(str, endpoint.prefixes)), each.host or "not told")


def _describe_state(each: Whereabouts, new: set[str], refused: Mapping[str, str]) -> str:
    if each.endpoint.name in refused:
        return "refused"
    if each.endpoint.name in new:
        return "new or changed"
    return "known" if each.inside or each.host is None else "outside"


def _write_comparison(found: Comparison, refused: Mapping[str, str]) -> dict[str, object]:
    return {
        "endpoints": [
            {
                "name": each.endpoint.name,
                "port": each.endpoint.port,
                "prefixes": [*map(str, each.endpoint.prefixes)],
                "host": each.host,
                "inside": each.inside,
                "shared": each.endpoint.shared,
            }
            for each in found.where
        ],
        "written": [endpoint.name for endpoint in found.written],
        "gone": list(found.gone),
        "outside": [each.endpoint.name for each in found.outside],
        "refused": dict(refused),
    }

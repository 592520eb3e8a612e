"""`aclflow openstack`: check an OpenStack, and manage groups that the cloud's alarms resize.

The check tells what the service would meet there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.names import DomainName
from orchestrator.cli.options import AsJson, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import at_work, say, say_json
from orchestrator.cloud.heat import connect_openstack
from orchestrator.cloud.heat.alarms import TEMPLATE as ALARMS
from orchestrator.cloud.heat.alarms import AlarmGroups, AlarmLimits
from orchestrator.cloud.heat.api import OpenStack
from orchestrator.cloud.heat.fleets import TEMPLATE as FLEET
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.clouds import read_cloud_file
from orchestrator.errors import AclflowError, BadInput
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

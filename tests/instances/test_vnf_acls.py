"""VNF-ACLs that Heat boots: real packets between the router and machines behind them, and from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from images.built import folder_of
from instances.looking import LONG_S, ask, fetches, is_shut_out
from patience import until
from twohosts.addresses import OUTSIDE_ADDRESS, PROJECTS, SEGMENT_MACHINES
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.projects import Project
from twohosts.vnfacls import DOMAIN, SWITCHES, TENANT, VnfAcls, vnf_acls

from orchestrator.policy.formats.native import acl_from_json

_LIST = [
    {"id": name, "action": "permit", "protocol": "tcp", "source": source, "destination_ports": 80}
    for name, source in (("outside", OUTSIDE_ADDRESS), ("within", SEGMENT_MACHINES))
]


@pytest.fixture(scope="module")
def acls(cloud: Cloud) -> Iterator[VnfAcls]:
    """Two that are in force, one on each host, with a list for what is behind them."""
    project = Project(cloud.place, next(iter(PROJECTS)))
    with vnf_acls(cloud, folder_of("acl-switch") / "acl-switch.qcow2", project) as made:
        with cloud.control.client() as client:
            client.acls.put(TENANT, acl_from_json({"rules": _LIST}))
        yield made


@pytest.fixture(scope="module")
def machines(cloud: Cloud, acls: VnfAcls) -> dict[str, Instance]:
    """A machine behind each, by host; all are reached."""
    project = Project(cloud.place, next(iter(PROJECTS)))
    made = {host: acls.boot(project, f"behind-{host}", host) for host in acls.hosts.values()}
    for each in made.values():
        until(partial(fetches, cloud, each.address), LONG_S, what=partial(_tell, cloud))
    return made


def _tell(cloud: Cloud) -> object:
    """What the service knows of the domain."""
    with cloud.control.client() as client:
        return client.domains.read(DOMAIN), client.domains.read_endpoints(DOMAIN)


def _leg_of(cloud: Cloud, machine: Instance) -> str:
    """The leg that the service has a machine behind."""
    with cloud.control.client() as client:
        [found] = [
            each.port
            for each in client.domains.read_endpoints(DOMAIN)
            if f"{machine.address}/32" in map(str, each.prefixes)
        ]
    return found


def test_machines_are_reached_as_their_list_permits(cloud: Cloud, acls: VnfAcls, machines: dict[str, Instance]) -> None:
    assert set(acls.hosts.values()) == {"one", "two"}
    legs = {acls.hosts[name]: leg for name, leg in SWITCHES.items()}
    for host, each in machines.items():
        assert _leg_of(cloud, each) == legs[host]
        assert not fetches(cloud, each.address, 81)
    one, two = machines["one"], machines["two"]
    for sender, target in ((one, two), (two, one)):
        until(lambda sender=sender, target=target: ask(cloud, sender, target.address) == "page")
        assert is_shut_out(cloud, sender, target.address, 81)


def test_a_machine_that_moves_finds_its_rules_at_the_next_vnf_acl(
    cloud: Cloud, acls: VnfAcls, machines: dict[str, Instance]
) -> None:
    project = machines["one"].project
    mover = acls.boot(project, "mover-behind", "one")
    until(lambda: fetches(cloud, mover.address), LONG_S)
    before = _leg_of(cloud, mover)
    project.cloud.compute.live_migrate_server(mover.server, host="two", force=True, block_migration="auto")
    until(lambda: _leg_of(cloud, mover) != before, LONG_S)
    until(lambda: project.server(mover.server).status == "ACTIVE", LONG_S)
    until(lambda: fetches(cloud, mover.address), LONG_S)
    assert not fetches(cloud, mover.address, 81), "its list is the same there"


def test_a_vnf_acl_that_boots_again_is_loaded_again(cloud: Cloud, acls: VnfAcls, machines: dict[str, Instance]) -> None:
    name = next(name for name, host in acls.hosts.items() if host == "one")
    project = machines["one"].project
    project.cloud.compute.reboot_server(acls.servers[name], "HARD")
    until(lambda: not fetches(cloud, machines["one"].address), LONG_S)
    assert fetches(cloud, machines["two"].address, patience_s=60.0)
    until(lambda: fetches(cloud, machines["one"].address), 2400.0)
    assert not fetches(cloud, machines["one"].address, 81)

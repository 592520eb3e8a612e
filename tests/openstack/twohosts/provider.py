"""What the cloud's operator makes for VNFs: networks of ML2/OVS, images, and the file by which aclflow signs in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import yaml
from allinone import running
from allinone.contents import PROJECT, USER, connect
from allinone.place import PASSWORD, REGION, Place

from twohosts.addresses import HOSTS, MANAGEMENT, MANAGEMENT_LENGTH
from twohosts.beside import start_agents, stop_agents
from twohosts.cloud import Cloud

TEMPLATES = Path(__file__).resolve().parents[3] / "heat-templates"
MANAGEMENT_PREFIX = str(ip_interface(f"{MANAGEMENT}/{MANAGEMENT_LENGTH}").network)
BOOTS_S = 2400.0
"""Machines begin without hardware support, on a machine that may do other things."""
_MANAGED = (f"{MANAGEMENT.rpartition('.')[0]}.100", f"{MANAGEMENT.rpartition('.')[0]}.119")


@contextmanager
def provided(cloud: Cloud, image: str, file: Path) -> Iterator[Any]:
    """Serve networks of ML2/OVS on both hosts during the block, and have an image with its flavor and management.

    Yields the operator's connection. Machines and networks of the block are removed at its end.
    """
    operator = connect(cloud.place, "admin", PROJECT)
    for host in cloud.hosts.values():
        host.switch_on_offloads()
    start_agents(cloud, operator.network, *HOSTS)
    try:
        make_network(operator, "management", MANAGEMENT_PREFIX, _MANAGED)
        if operator.image.find_image(image) is None:
            _make_image(operator, image, file)
        yield operator
    finally:
        for each in operator.network.networks(project_id=operator.session.get_project_id()):
            _delete_machines(operator, each.id)
            operator.network.delete_network(each.id)
        stop_agents(cloud, operator.network, *HOSTS)


def make_network(operator: Any, name: str, cidr: str, pool: tuple[str, str], *, is_local: bool = False) -> str:
    """Make a network without port security for its ports' owners to ask for; return its id.

    It is flat, by the link of its name; a local one is another segment on each host, for every project.
    """
    kind: Mapping[str, object] = {"provider_network_type": "flat", "provider_physical_network": name}
    if is_local:
        kind = {"provider_network_type": "local", "shared": True}
    made = operator.network.create_network(name=name, **kind)
    operator.network.create_subnet(
        name=name, network_id=made.id, ip_version=4, cidr=cidr, is_dhcp_enabled=False, gateway_ip=None,
        allocation_pools=[dict(zip(("start", "end"), pool, strict=True))],
    )  # fmt: skip
    return str(made.id)


def write_cloud(place: Place, parameters: Mapping[str, object] | None = None) -> Path:
    """Write the service's file about the cloud, with an operator's `clouds.yaml`; return its path.

    `parameters` are those of the environment file. Fleets are made by the project's own user, `operator` is another
    entry, an administrator's.
    """
    entries = {}
    for name, user in (("fleets", USER), ("operator", "admin")):
        auth = {"auth_url": place.keystone, "username": user, "password": PASSWORD, "project_name": PROJECT,
                "user_domain_name": "Default", "project_domain_name": "Default"}  # fmt: skip
        entries[name] = {"auth": auth, "region_name": REGION}
    clouds, environment, file = (place.root / f"{name}.yaml" for name in ("clouds-operator", "environment", "cloud"))
    clouds.write_text(yaml.safe_dump({"clouds": entries}))
    environment.write_text(yaml.safe_dump({"parameters": dict(parameters or {})}))
    about = {"kind": "heat", "cloud": "fleets", "clouds_file": str(clouds), "environment": str(environment),
             "group_tokens": str(place.root / "tokens")}  # fmt: skip
    file.write_text(yaml.safe_dump(about))
    return file


def _make_image(operator: Any, name: str, file: Path) -> None:
    """Give Glance an image, and Nova its flavor."""
    with file.open("rb") as data:
        made = operator.image.create_image(
            name, container_format="bare", disk_format="qcow2", visibility="public", data=data, validate_checksum=False
        )
    operator.image.wait_for_status(made, "active")
    operator.compute.create_flavor(name=name, ram=1024, vcpus=1, disk=4)


def _delete_machines(operator: Any, network: str) -> None:
    """Delete the instances that are left on a network, and their ports."""
    ports = list(operator.network.ports(network_id=network))
    servers = {port.device_id for port in ports if port.device_id}
    for server in servers:
        operator.compute.delete_server(server)
    for server in servers:
        running.wait_for("an instance's end", lambda server=server: operator.compute.find_server(server) is None)
    for port in ports:
        operator.network.delete_port(port.id)

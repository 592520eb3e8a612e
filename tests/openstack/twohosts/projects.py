"""Two projects, each with a network of aclflow's, and the instances that Nova boots for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from allinone.contents import PROJECT, connect
from allinone.place import Place
from openstack.connection import Connection
from openstack.exceptions import ConflictException

from twohosts.addresses import PROJECTS, PROJECTS6
from twohosts.image import IMAGE

FLAVOR = "small"
RESOLVERS = {4: "169.254.169.253", 6: "fd00:ac1f::53"}


def make(place: Place) -> None:
    """Make the projects, their networks, and a flavor."""
    admin = connect(place, "admin", PROJECT)
    user, role = admin.identity.find_user("admin"), admin.identity.find_role("admin")
    admin.compute.create_flavor(name=FLAVOR, ram=128, vcpus=1, disk=1)
    for name, prefix in PROJECTS.items():
        project = admin.identity.create_project(name=name, domain_id="default")
        admin.identity.assign_project_role_to_user(project, user, role)
        network = admin.network.create_network(
            name=name, provider_network_type="vlan", provider_physical_network="aclflow", project_id=project.id
        )
        for version, cidr in ((4, prefix), (6, PROJECTS6[name])):
            admin.network.create_subnet(
                name=f"{name}{version}", network_id=network.id, project_id=project.id, ip_version=version, cidr=cidr,
                is_dhcp_enabled=False, dns_nameservers=[RESOLVERS[version]],
            )  # fmt: skip


def heartbeats(place: Place) -> dict[str, str]:
    """When each compute host's nova-compute last told Nova that it is there."""
    services = connect(place, "admin", PROJECT).compute.services(binary="nova-compute")
    return {each.host: str(each.updated_at) for each in services}


class Project:
    """One of the projects, as Nova and Neutron have it."""

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.cloud: Connection = connect(place, "admin", name)
        self.id = self.cloud.session.get_project_id()

    def boot(
        self, name: str, host: str, *, config_drive: bool = False, plug: Mapping[str, str] | None = None,
        commands: str = "",
    ) -> Any:  # fmt: skip
        """Have Nova boot an instance on a host; it is not up yet when this returns.

        `plug` is a port that is there, or another network than the project's, as Nova's API names them. What
        `commands` say the instance does, once it has read its config drive.
        """
        compute = self.cloud.compute
        plugged = plug or {"uuid": self.cloud.network.find_network(self.name).id}
        return compute.create_server(
            name=name, image_id=self.cloud.image.find_image(IMAGE).id, flavor_id=compute.find_flavor(FLAVOR).id,
            networks=[dict(plugged)], availability_zone=f"nova:{host}", config_drive=config_drive,
            **({"user_data": base64.b64encode(commands.encode()).decode()} if commands else {}),
        )  # fmt: skip

    def server(self, server: Any) -> Any:
        """The instance as Nova has it now."""
        return self.cloud.compute.get_server(server.id)

    def port(self, server: Any) -> Any:
        """The port of an instance as Neutron has it now; None before Nova made it."""
        return next(iter(self.cloud.network.ports(device_id=server.id)), None)

    def addresses(self, server: Any) -> tuple[str, str]:
        """The IPv4 and the IPv6 address of an instance, once it has a port."""
        four, six = sorted((each["ip_address"] for each in self.port(server).fixed_ips), key=lambda text: ":" in text)
        return four, six

    def log(self, server: Any) -> str:
        """What the instance wrote to its terminal, as Nova shows it; nothing while Nova says that it is not ready."""
        try:
            return str(self.cloud.compute.get_server_console_output(server.id)["output"])
        except ConflictException:
            return ""


def gateways_of(*projects: Project, version: int) -> list[str]:
    """What Neutron calls the gateway of each project's subnet of one IP version."""
    return [
        subnet.gateway_ip for each in projects
        for subnet in each.cloud.network.subnets(
            network_id=each.cloud.network.find_network(each.name).id, ip_version=version
        )
    ]  # fmt: skip

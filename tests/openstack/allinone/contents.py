"""What is in the cloud to begin with: users and endpoints, then an image, a flavor and networks to work with."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import keystoneauth1.exceptions
import openstack
import openstack.connection
import openstack.exceptions

from allinone.place import PASSWORD, REGION, Place
from allinone.running import wait_for

USER = PROJECT = "demo"
IMAGE, FLAVOR = "firewall", "firewall"
NETWORKS = {"management": "10.91.0.0/24", "left": "10.92.0.0/24", "right": "10.93.0.0/24"}
_NOT_YET = (openstack.exceptions.SDKException, keystoneauth1.exceptions.ClientException)


def connect(place: Place, user: str = USER, project: str = PROJECT) -> openstack.connection.Connection:
    """A connection as one of the users."""
    auth = {"auth_url": place.keystone, "username": user, "password": PASSWORD, "project_name": project}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    return openstack.connect(
        auth=auth | domains, region_name=REGION, identity_api_version="3", load_yaml_config=False, load_envvars=False
    )


def fill_keystone(place: Place) -> None:
    """Users, projects, Heat's own domain, and where each service is."""
    cloud = connect(place, "admin", "admin")
    identity = cloud.identity
    roles = {role.name: role for role in identity.roles()}
    for name in ("service", "heat_stack_owner", "heat_stack_user"):
        if name not in roles:
            roles[name] = identity.create_role(name=name)
    service, demo = (identity.create_project(name=name, domain_id="default") for name in ("service", PROJECT))
    svc, user = (
        identity.create_user(name=name, password=PASSWORD, domain_id="default", default_project_id=home.id)
        for name, home in (("svc", service), (USER, demo))
    )
    admin = identity.find_user("admin")
    grant = identity.assign_project_role_to_user
    for role in ("admin", "service"):
        grant(service, svc, roles[role])
    for role in ("member", "reader", "heat_stack_owner"):
        grant(demo, user, roles[role])
    grant(demo, admin, roles["admin"])
    heat = identity.create_domain(name="heat")
    keeper = identity.create_user(name="heat_domain_admin", password=PASSWORD, domain_id=heat.id)
    identity.assign_domain_role_to_user(heat, keeper, roles["admin"])
    for kind, name, url in _endpoints(place):
        made = identity.create_service(type=kind, name=name)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(service_id=made.id, interface=interface, url=url, region_id=REGION)


def _endpoints(place: Place) -> tuple[tuple[str, str, str], ...]:
    return (
        ("placement", "placement", place.url("placement")),
        ("image", "glance", place.url("glance")),
        ("compute", "nova", place.url("nova", "/v2.1")),
        ("network", "neutron", place.url("neutron")),
        ("orchestration", "heat", place.url("heat", "/v1/%(tenant_id)s")),
        ("cloudformation", "heat-cfn", place.url("heat-cfn", "/v1")),
    )


def wait_until_ready(place: Place, hosts: int = 1) -> None:
    """Wait until so many hosts for virtual machines are known, and Heat has an engine."""
    cloud = connect(place, "admin", PROJECT)
    wait_for("Nova's hosts", partial(_is_so, lambda: len(list(cloud.compute.hypervisors())) >= hosts))
    services = partial(cloud.session.get, "/services", endpoint_filter={"service_type": "orchestration"})
    wait_for(
        "Heat's engine", partial(_is_so, lambda: any(each["status"] == "up" for each in services().json()["services"]))
    )


def fill(place: Place) -> None:
    """An image, a flavor, and the three networks of a firewall."""
    cloud = connect(place, "admin", PROJECT)
    image = cloud.image.create_image(
        IMAGE,
        container_format="bare",
        disk_format="raw",
        visibility="public",
        data=b"\0" * 1024,
        validate_checksum=False,
    )
    cloud.image.wait_for_status(image, "active")
    cloud.compute.create_flavor(name=FLAVOR, ram=64, vcpus=1, disk=1)
    cloud.compute.create_flavor(name="giant", ram=1 << 30, vcpus=1, disk=1)  # no host has so much
    for name, prefix in NETWORKS.items():
        network = cloud.network.create_network(name=name)
        cloud.network.create_subnet(
            name=name, network_id=network.id, ip_version=4, cidr=prefix, is_dhcp_enabled=False, gateway_ip=None
        )


def _is_so(asked: object) -> bool:
    with suppress(*_NOT_YET):
        return bool(asked())  # type: ignore[operator]
    return False

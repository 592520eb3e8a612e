"""VNF-ACLs that Heat boots on both hosts by `security-domain.yaml`, and machines of a project behind them.

    router ── segment ─┬─ acl-0 on one host ── tenants-0 ── its `tenants` ── machines
                       └─ acl-1 on the other ─ tenants-1 ── its `tenants` ── machines

Management and the segment are flat networks of ML2/OVS, `tenants` is another one on each host (provider type local).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

import yaml
from allinone import running
from allinone.contents import PROJECT, connect
from allinone.place import PASSWORD, REGION
from heatclient import client as heat_client
from heatclient.common import template_utils

from orchestrator.client import Host
from orchestrator.hosts.switch import ROUTED_PORT, datapath_of
from orchestrator.policy.addresses import Prefix
from twohosts.addresses import (
    HOSTS,
    MANAGEMENT,
    MANAGEMENT_LENGTH,
    SEGMENT_LENGTH,
    SEGMENT_MACHINES,
    SEGMENT_ROUTER,
    SEGMENT_SWITCHES,
)
from twohosts.beside import start_agents, stop_agents
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.hosts import ACLFLOW
from twohosts.projects import Project

DOMAIN, TENANT = "pop1", "behind"
SWITCHES = {"acl-0": "tenants-0", "acl-1": "tenants-1"}
"""VNF-ACLs, each with its leg."""
_IMAGE = _FLAVOR = "acl-switch"
_TEMPLATES = Path(__file__).resolve().parents[3] / "heat-templates"
_MANAGED = (f"{MANAGEMENT.rpartition('.')[0]}.100", f"{MANAGEMENT.rpartition('.')[0]}.119")
_FOLLOWING = "endpoints-behind"
_BOOTS_S = 2400.0
"""Three machines begin without hardware support, on a machine that may do other things."""


@dataclass(frozen=True, slots=True)
class VnfAcls:
    """A domain's VNF-ACLs that are in force; `hosts` has each one's compute host, `servers` its instance."""

    cloud: Cloud
    network: str
    hosts: Mapping[str, str]
    servers: Mapping[str, Any]

    def boot(self, project: Project, name: str, host: str) -> Instance:
        """Boot a machine on a host, behind the VNF-ACL there."""
        [port] = [project.cloud.network.create_port(network_id=self.network, port_security_enabled=False)]
        address = port.fixed_ips[0]["ip_address"]
        commands = (
            "sleep 2", "killall udhcpc dhclient", f"ip address add {address}/{SEGMENT_LENGTH} dev eth0",
            f"ip route add default via {SEGMENT_ROUTER}",
        )  # fmt: skip
        server = project.boot(name, host, config_drive=True, plug={"port": port.id}, commands="\n".join(commands))
        running.wait_for(name, lambda: project.server(server).status == "ACTIVE")
        running.wait_for(f"{name}'s terminal", lambda: "terminal ready" in project.log(server))
        return Instance(name, project, host, project.server(server), address, "")


@contextmanager
def vnf_acls(cloud: Cloud, image: Path, project: Project) -> Iterator[VnfAcls]:
    """Boot VNF-ACLs from an image during the block; machines of a project behind them are endpoints."""
    operator = connect(cloud.place, "admin", PROJECT)
    for host in cloud.hosts.values():
        host.switch_on_offloads()
    start_agents(cloud, operator.network, *HOSTS)
    try:
        network = _make_networks(operator)
        _make_image(operator, image)
        made = _wait_until_in_force(cloud, operator, network, _create_stack(cloud))
        _follow_machines(made, project)
        yield made
    finally:
        running.stop(cloud.place, [_FOLLOWING])
        _delete_stack(cloud)
        for each in operator.network.networks(project_id=operator.session.get_project_id()):
            _delete_machines(operator, each.id)
            operator.network.delete_network(each.id)
        stop_agents(cloud, operator.network, *HOSTS)


def _make_networks(operator: Any) -> str:
    """Make the operator's networks; return the id of the one that machines are on."""
    segment = f"{SEGMENT_ROUTER}/{SEGMENT_LENGTH}"
    machines = ip_network(SEGMENT_MACHINES)
    wanted = {
        "management": ("flat", f"{MANAGEMENT}/{MANAGEMENT_LENGTH}", _MANAGED),
        "segment": ("flat", segment, SEGMENT_SWITCHES),
        "tenants": ("local", segment, (str(machines[1]), str(machines[-2]))),
    }
    found = ""
    for name, (kind, cidr, (first, last)) in wanted.items():
        physical = {"provider_physical_network": name} if kind == "flat" else {"shared": True}
        made = operator.network.create_network(name=name, provider_network_type=kind, **physical)
        operator.network.create_subnet(
            name=name, network_id=made.id, ip_version=4, cidr=str(ip_interface(cidr).network), is_dhcp_enabled=False,
            gateway_ip=None, allocation_pools=[{"start": first, "end": last}],
        )  # fmt: skip
        found = made.id
    return found


def _make_image(operator: Any, image: Path) -> None:
    """Give Glance an image, and Nova its flavor."""
    with image.open("rb") as data:
        made = operator.image.create_image(
            _IMAGE, container_format="bare", disk_format="qcow2", visibility="public", data=data,
            validate_checksum=False,
        )  # fmt: skip
    operator.image.wait_for_status(made, "active")
    operator.compute.create_flavor(name=_FLAVOR, ram=1024, vcpus=1, disk=4)


def _create_stack(cloud: Cloud) -> Mapping[str, Any]:
    """Bring the domain with its hosts into the service, and have Heat make its machines; return the stack's outputs."""
    with cloud.control.client() as client:
        client.domains.create(DOMAIN)
        for name in SWITCHES:
            client.domains.add_host(DOMAIN, Host(name, datapath_of(DOMAIN, name), ROUTED_PORT))
        client.tenants.create(TENANT, domain=DOMAIN, prefixes=(Prefix.parse(SEGMENT_MACHINES),))
        tokens = [client.enrolment.invite(DOMAIN, name=name, kind="switch") for name in SWITCHES]
        controller = client.enrolment.invite(DOMAIN, kind="openflow")
    parameters = {
        "domain": DOMAIN, "service_url": cloud.control.url, "controller_token": controller,
        "switch_tokens": ",".join(tokens), "image": _IMAGE, "flavor": _FLAVOR, "controller_flavor": _FLAVOR,
        "management_network": "management", "management_prefix": f"{MANAGEMENT.rpartition('.')[0]}.0/24",
        "uplink_network": "segment", "tenant_network": "tenants", "placement": "anti-affinity",
        "uplink_kind": "segment", "ranges": SEGMENT_MACHINES, "router": SEGMENT_ROUTER,
    }  # fmt: skip
    heat = _heat(cloud)
    files, body = template_utils.get_template_contents(str(_TEMPLATES / "security-domain.yaml"))
    made = heat.stacks.create(stack_name=DOMAIN, template=body, files=files, parameters=parameters)["stack"]["id"]
    running.wait_for("the stack", lambda: not _status(heat, made).endswith("IN_PROGRESS"), _BOOTS_S)
    stack = heat.stacks.get(made)
    if stack.stack_status != "CREATE_COMPLETE":
        raise running.NotStartedError(f"the stack: {stack.stack_status_reason}")
    return {each["output_key"]: each["output_value"] for each in stack.outputs}


def _wait_until_in_force(cloud: Cloud, operator: Any, network: str, outputs: Mapping[str, Any]) -> VnfAcls:
    """Return the VNF-ACLs when the service has read back what they enforce."""
    servers = {name: operator.compute.get_server(outputs["switches"][name[-1]]) for name in SWITCHES}
    with cloud.control.client() as client:
        generation = client.domains.read(DOMAIN).generation
        running.wait_for("the VNF-ACLs", lambda: client.domains.wait_until_enforced(DOMAIN, generation).done, _BOOTS_S)
    return VnfAcls(cloud, network, {name: str(each.compute_host) for name, each in servers.items()}, servers)


def _follow_machines(made: VnfAcls, project: Project) -> None:
    """Have `aclflow openstack endpoints` bring in what a project has behind the VNF-ACLs, as an operator does."""
    place = made.cloud.place
    auth = {"auth_url": place.keystone, "username": "admin", "password": PASSWORD, "project_name": PROJECT,
            "user_domain_name": "Default", "project_domain_name": "Default"}  # fmt: skip
    clouds, described = place.root / "clouds-operator.yaml", place.root / "cloud.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"operator": {"auth": auth, "region_name": REGION}}}))
    about = {"kind": "heat", "cloud": "operator", "clouds_file": str(clouds), "group_tokens": str(place.root),
             "environment": str(_TEMPLATES / "environment.yaml")}  # fmt: skip
    described.write_text(yaml.safe_dump(about))
    legs = [word for name, leg in SWITCHES.items() for word in ("--leg", f"{made.hosts[name]}={leg}")]
    command = ("openstack", "endpoints", TENANT, "--project", project.name, "--cloud", str(described),
               "--network", "tenants", *legs, "--apply", "--follow")  # fmt: skip
    settings = {"ACLFLOW_URL": made.cloud.control.url, "ACLFLOW_TOKEN": made.cloud.control.token,
                "ACLFLOW_AUTHORITY": str(place.authority)}  # fmt: skip
    running.start(place, _FOLLOWING, (*ACLFLOW, *command), settings)


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


def _delete_stack(cloud: Cloud) -> None:
    heat = _heat(cloud)
    for each in heat.stacks.list():
        heat.stacks.delete(each.id)
    running.wait_for("the stack's end", lambda: not list(heat.stacks.list()))


def _status(heat: Any, stack: str) -> str:
    return str(heat.stacks.get(stack, resolve_outputs=False).stack_status)


def _heat(cloud: Cloud) -> Any:
    return heat_client.Client("1", session=connect(cloud.place).session, region_name=REGION)

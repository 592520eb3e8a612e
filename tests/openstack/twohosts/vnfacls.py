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

from allinone import running
from allinone.contents import connect
from allinone.place import REGION
from heatclient import client as heat_client
from heatclient.common import template_utils

from orchestrator.client import Host
from orchestrator.hosts.switch import ROUTED_PORT, datapath_of
from orchestrator.policy.addresses import Prefix
from twohosts.addresses import SEGMENT_LENGTH, SEGMENT_MACHINES, SEGMENT_ROUTER, SEGMENT_SWITCHES
from twohosts.cloud import Cloud
from twohosts.example import Instance
from twohosts.hosts import ACLFLOW
from twohosts.projects import Project
from twohosts.provider import BOOTS_S, MANAGEMENT_PREFIX, TEMPLATES, make_network, provided, write_cloud

DOMAIN, TENANT = "pop1", "behind"
SWITCHES = {"acl-0": "tenants-0", "acl-1": "tenants-1"}
"""VNF-ACLs, each with its leg."""
_IMAGE = "acl-switch"
_FOLLOWING = "endpoints-behind"


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
    with provided(cloud, _IMAGE, image) as operator:
        segment = str(ip_interface(f"{SEGMENT_ROUTER}/{SEGMENT_LENGTH}").network)
        machines = ip_network(SEGMENT_MACHINES)
        make_network(operator, "segment", segment, SEGMENT_SWITCHES)
        pool = str(machines[1]), str(machines[-2])
        network = make_network(operator, "tenants", segment, pool, is_local=True)
        try:
            made = _wait_until_in_force(cloud, operator, network, _create_stack(cloud))
            _follow_machines(made, project)
            yield made
        finally:
            running.stop(cloud.place, [_FOLLOWING])
            _delete_stack(cloud)


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
        "switch_tokens": ",".join(tokens), "image": _IMAGE, "flavor": _IMAGE, "controller_flavor": _IMAGE,
        "management_network": "management", "management_prefix": MANAGEMENT_PREFIX,
        "uplink_network": "segment", "tenant_network": "tenants", "placement": "anti-affinity",
        "uplink_kind": "segment", "ranges": SEGMENT_MACHINES, "router": SEGMENT_ROUTER,
    }  # fmt: skip
    heat = _heat(cloud)
    files, body = template_utils.get_template_contents(str(TEMPLATES / "security-domain.yaml"))
    made = heat.stacks.create(stack_name=DOMAIN, template=body, files=files, parameters=parameters)["stack"]["id"]
    running.wait_for("the stack", lambda: not _status(heat, made).endswith("IN_PROGRESS"), BOOTS_S)
    stack = heat.stacks.get(made)
    if stack.stack_status != "CREATE_COMPLETE":
        raise running.NotStartedError(f"the stack: {stack.stack_status_reason}")
    return {each["output_key"]: each["output_value"] for each in stack.outputs}


def _wait_until_in_force(cloud: Cloud, operator: Any, network: str, outputs: Mapping[str, Any]) -> VnfAcls:
    """Return the VNF-ACLs when the service has read back what they enforce."""
    servers = {name: operator.compute.get_server(outputs["switches"][name[-1]]) for name in SWITCHES}
    with cloud.control.client() as client:
        generation = client.domains.read(DOMAIN).generation
        running.wait_for("the VNF-ACLs", lambda: client.domains.wait_until_enforced(DOMAIN, generation).done, BOOTS_S)
    return VnfAcls(cloud, network, {name: str(each.compute_host) for name, each in servers.items()}, servers)


def _follow_machines(made: VnfAcls, project: Project) -> None:
    """Have `aclflow openstack endpoints` bring in what a project has behind the VNF-ACLs, as an operator does."""
    place = made.cloud.place
    legs = [word for name, leg in SWITCHES.items() for word in ("--leg", f"{made.hosts[name]}={leg}")]
    command = ("openstack", "endpoints", TENANT, "--project", project.name, "--cloud", str(write_cloud(place)),
               "--os-cloud", "operator", "--network", "tenants", *legs, "--apply", "--follow")  # fmt: skip
    running.start(place, _FOLLOWING, (*ACLFLOW, *command), made.cloud.control.settings)


def _delete_stack(cloud: Cloud) -> None:
    heat = _heat(cloud)
    for each in heat.stacks.list():
        heat.stacks.delete(each.id)
    running.wait_for("the stack's end", lambda: not list(heat.stacks.list()))


def _status(heat: Any, stack: str) -> str:
    return str(heat.stacks.get(stack, resolve_outputs=False).stack_status)


def _heat(cloud: Cloud) -> Any:
    return heat_client.Client("1", session=connect(cloud.place).session, region_name=REGION)

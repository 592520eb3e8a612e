"""ML2/OVS beside aclflow on hosts of the cloud, and the file by which `aclflow bench cloud` finds both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from allinone.place import PASSWORD, REGION
from allinone.running import wait_for

from orchestrator.bench.cloud.cloudsite import Compute
from twohosts.addresses import DOMAIN
from twohosts.cloud import Cloud
from twohosts.hosts import POLLING_S
from twohosts.image import IMAGE
from twohosts.projects import FLAVOR, Project

HOST = "one"
"""Where both are."""
_AGENT = "neutron-openvswitch-agent"


@contextmanager
def ovs_network(cloud: Cloud, project: Project) -> Iterator[Any]:
    """Run ML2/OVS' agent on a host, with a network of its own, during the block."""
    api = project.cloud.network
    start_agents(cloud, api, HOST)
    made = api.create_network(name="plain", provider_network_type="local")
    api.create_subnet(network_id=made.id, ip_version=4, cidr="192.0.2.0/24", is_dhcp_enabled=False, gateway_ip=None)
    yield made
    api.delete_network(made.id)
    stop_agents(cloud, api, HOST)


def start_agents(cloud: Cloud, api: Any, *hosts: str) -> None:
    """Start ML2/OVS' agent on hosts; Neutron knows of it when this returns. Raises NotStartedError."""
    for host in hosts:
        cloud.hosts[host].start_neutron_agent()
    for host in hosts:
        wait_for(f"ML2/OVS' agent on {host}", partial(_is_alive, api, host))


def stop_agents(cloud: Cloud, api: Any, *hosts: str) -> None:
    """Stop ML2/OVS' agent on hosts, and have Neutron forget it."""
    for host in hosts:
        cloud.hosts[host].stop_neutron_agent()
        for agent in api.agents(host=host):
            api.delete_agent(agent.id)


def _is_alive(api: Any, host: str) -> bool:
    return any(each.is_alive for each in api.agents(binary=_AGENT, host=host))


def compute_of(cloud: Cloud, host: str) -> Compute:
    """A host as the suite knows it."""
    return Compute(host, cloud.prefix + host, cloud.hosts[host].enter())


def write_site(cloud: Cloud, project: Project, network: Any) -> Path:
    """Write where the suite finds the cloud, for one project and its network of ML2/OVS."""
    place = cloud.place
    auth = {"auth_url": place.keystone, "username": "admin", "password": PASSWORD, "project_name": project.name,
            "user_domain_name": "Default", "project_domain_name": "Default"}  # fmt: skip
    clouds = place.root / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"here": {"auth": auth, "region_name": REGION}}}))
    compute = compute_of(cloud, HOST)
    site = {
        "os_cloud": "here", "clouds_file": str(clouds), "host": HOST, "enter": list(compute.enter),
        "namespace": compute.namespace, "networks": {"aclflow": project.name, "neutron_ovs": network.name},
        "aclflow": {
            "url": cloud.control.url, "token_file": str(place.root / "aclflow.token"), "authority": place.authority,
            "domain": DOMAIN,
        },
        "polling_interval_s": POLLING_S, "boot": {"image": IMAGE, "flavor": FLAVOR, "reachable": False},
    }  # fmt: skip
    file = place.root / "bench.yaml"
    file.write_text(yaml.safe_dump(site))
    return file

"""An instance of each project, and what the projects' lists say.

    outside ──ping, tcp 80──▶ shop (blue, on one) ──tcp 80──▶ base (red, on two)

Nothing else comes in anywhere; blue's instances send to no port 81.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allinone.running import wait_for

from orchestrator.errors import NotFound
from orchestrator.policy.formats.native import acl_from_json
from twohosts.addresses import DOMAIN, OUTSIDE_ADDRESS, OUTSIDE_ADDRESS6, PROJECTS, PROJECTS6
from twohosts.cloud import Cloud
from twohosts.projects import Project

LISTS = {
    "blue": [
        {"id": "ping", "action": "permit", "protocol": "icmp", "source": OUTSIDE_ADDRESS},
        {"id": "web", "action": "permit", "protocol": "tcp", "source": OUTSIDE_ADDRESS, "destination_ports": 80},
        {"id": "ping6", "action": "permit", "protocol": "icmpv6", "source": OUTSIDE_ADDRESS6},
        {"id": "web6", "action": "permit", "protocol": "tcp", "source": OUTSIDE_ADDRESS6, "destination_ports": 80},
        {"id": "no-81", "direction": "egress", "action": "deny", "protocol": "tcp", "destination_ports": 81},
    ],
    "red": [
        {"id": name, "action": "permit", "protocol": "tcp", "source": source["blue"], "destination_ports": 80}
        for name, source in (("web", PROJECTS), ("web6", PROJECTS6))
    ],
}
_PLACES = {"shop": ("blue", "one"), "base": ("red", "two")}


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance that is up: its project, its host, and its addresses."""

    name: str
    project: Project
    host: str
    server: Any
    address: str
    address6: str


def put_list(cloud: Cloud, project: Project, rules: list[dict[str, Any]]) -> None:
    """Replace a project's list; it is enforced when this returns. Raises NotStartedError."""
    with cloud.control.client() as client:
        written = client.acls.put(project.id, acl_from_json({"rules": rules}))
        wait_for("the list", lambda: client.domains.wait_until_enforced(DOMAIN, written.generation).done)


def wait_for_tenant(cloud: Cloud, project: Project) -> None:
    """Wait until the service knows a project, which Neutron's driver tells it of. Raises NotStartedError."""
    with cloud.control.client() as client:

        def is_known() -> bool:
            try:
                return bool(client.tenants.read(project.id).prefixes)
            except NotFound:
                return False

        wait_for(f"aclflow's tenant for {project.name}", is_known)


def boot(cloud: Cloud, project: Project, name: str, host: str) -> Instance:
    """Boot an instance and wait until it has its address. Raises NotStartedError with what Nova says."""
    return wait_until_up(project, project.boot(name, host), host)


def wait_until_up(project: Project, server: Any, host: str) -> Instance:
    """Wait until an instance has its address from its host. Raises NotStartedError with what Nova says."""

    def is_active() -> bool:
        now = project.server(server)
        if now.status == "ERROR":
            raise RuntimeError(f"{now.name}: {now.fault}")
        return bool(now.status == "ACTIVE")

    wait_for(f"Nova to start {server.name}", is_active)
    addresses = project.addresses(server)
    for address in addresses:
        wait_for(f"{address} of {server.name}", lambda address=address: f"address {address}/" in project.log(server))
    return Instance(server.name, project, host, project.server(server), *addresses)


def begin(cloud: Cloud) -> dict[str, Instance]:
    """Write both lists, and boot an instance of each project; they are up when this returns."""
    projects = {name: Project(cloud.place, name) for name in PROJECTS}
    for name, project in projects.items():
        wait_for_tenant(cloud, project)
        put_list(cloud, project, LISTS[name])
    begun = {
        name: projects[owner].boot(name, host, config_drive=name == "shop") for name, (owner, host) in _PLACES.items()
    }
    return {
        name: wait_until_up(projects[owner], begun[name], host) for name, (owner, host) in _PLACES.items()
    }  # fmt: skip

"""How a lab is doing, as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import Refused
from orchestrator.lab import cluster, processes
from orchestrator.lab.cluster import Firewall
from orchestrator.lab.pop import Lab
from orchestrator.lab.spec import EndpointSpec


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One of the lab's processes; `running` is whether this very one still does."""

    name: str
    pid: int
    running: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A client (`host` and `tenant` are empty) or an endpoint, and its namespace."""

    name: str
    namespace: str
    host: str
    tenant: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """A host's bridge: its flow count (None: no answer), and whether a controller is connected.

    The latter is what Open vSwitch writes into its database, up to five seconds late.
    """

    host: str
    datapath_id: str
    connected: bool
    flows: int | None


@dataclass(frozen=True, slots=True)
class FirewallStatus:
    """A member of the lab's cluster: whether it runs, and gets traffic."""

    name: str
    namespace: str
    running: bool
    serving: bool


@dataclass(frozen=True, slots=True)
class Status:
    """All of a lab."""

    prefix: str
    run_dir: str
    api: str | None
    processes: tuple[ProcessStatus, ...]
    bridges: tuple[BridgeStatus, ...]
    nodes: tuple[NodeStatus, ...]
    firewalls: tuple[FirewallStatus, ...]


def look(lab: Lab) -> Status:
    """Ask the lab's processes and switches how they are."""
    return Status(
        prefix=lab.layout.prefix,
        run_dir=str(lab.layout.run_dir),
        api=lab.state.api,
        processes=tuple(ProcessStatus(p.name, p.pid, processes.alive(p)) for p in lab.state.processes),
        bridges=tuple(_describe_bridge(lab, host.name, host.datapath_id) for host in lab.spec.hosts),
        nodes=tuple(
            NodeStatus(
                name=node.name,
                namespace=lab.namespace(node.name),
                host=node.host if isinstance(node, EndpointSpec) else "",
                tenant=node.tenant if isinstance(node, EndpointSpec) else "",
                addresses=tuple(map(str, node.addresses)),
            )
            for node in lab.spec.nodes
        ),
        firewalls=tuple(map(_describe_firewall, cluster.members_of(lab))),
    )


def _describe_firewall(member: Firewall) -> FirewallStatus:
    try:
        serving = cluster.is_up(member)
    except Refused:  # the switch does not answer, or has not got its interfaces yet
        serving = False
    return FirewallStatus(member.name, member.forwarder.namespace, bool(member.processes()), serving)


def _describe_bridge(lab: Lab, host: str, datapath_id: str) -> BridgeStatus:
    try:
        connected = lab.ovs_of(host).vsctl("get", "controller", host, "is_connected").strip() == "true"
        aggregate = lab.ovs_of(host).ofctl("dump-aggregate", host)
    except Refused:
        return BridgeStatus(host, datapath_id, connected=False, flows=None)
    found = re.search(r"flow_count=(\d+)", aggregate)
    return BridgeStatus(host, datapath_id, connected, int(found[1]) if found else None)

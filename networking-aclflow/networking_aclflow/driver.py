"""The mechanism driver: refuses what these networks cannot do, binds ports, and notes each change in the journal.

    bind_port        vif_type ovs on the bridge br-aclflow, connectivity l3
    *_precommit      reasons to refuse; the journal, in the change's own transaction; the port's provisioning block

The worker (`worker.py`) does the rest. Nothing here waits for the service, but one question for its hosts.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from neutron.db import models_v2, provisioning_blocks
from neutron_lib import constants
from neutron_lib import exceptions as n_exc
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import resources
from neutron_lib.plugins.ml2 import api
from oslo_log import log

from networking_aclflow import bindings, journal
from networking_aclflow.config import settings
from networking_aclflow.service import KnownHosts, Service
from networking_aclflow.worker import JournalWorker

LOG = log.getLogger(__name__)

_ROUTED = (
    *constants.ROUTER_INTERFACE_OWNERS,
    *constants.ROUTER_INTERFACE_OWNERS_SNAT,
    constants.DEVICE_OWNER_ROUTER_GW,
    constants.DEVICE_OWNER_FLOATINGIP,
)


class RefusedByAclflow(n_exc.Conflict):
    """Something that these networks cannot do."""

    message = "aclflow: %(reason)s"


class AclflowMechanismDriver(api.MechanismDriver):
    """Ports of its own physical networks become endpoints of aclflow; it has nothing to do with other networks."""

    def initialize(self) -> None:
        """Read the settings."""
        self._settings = found = settings()
        self._networks = frozenset(found.physical_networks)
        self._hosts = KnownHosts(self._service(), found.domain)
        self._details = {
            portbindings.CAP_PORT_FILTER: True,
            portbindings.OVS_HYBRID_PLUG: False,
            portbindings.VIF_DETAILS_CONNECTIVITY: self.connectivity,
            portbindings.VIF_DETAILS_BRIDGE_NAME: found.bridge,
            portbindings.OVS_DATAPATH_TYPE: found.datapath_type,
        }

    @property
    def connectivity(self) -> str:
        return portbindings.CONNECTIVITY_L3

    def get_workers(self) -> list[JournalWorker]:
        """Return the process that tells the service."""
        return [JournalWorker(self._settings, self._service())]

    def _service(self) -> Service:
        found = self._settings
        return Service(found.url, found.token_file, found.authority, found.request_timeout, plain_http=found.plain_http)

    # -------------------------------------------------------------------------------------------------------- subnets

    def create_subnet_precommit(self, context: Any) -> None:
        """Refuse a subnet that overlaps another one; note the project whose it is."""
        subnet, session = context.current, context._plugin_context.session
        if not self._has(context.network.network_segments):
            return
        self._check_scope(session, subnet)
        mine = ipaddress.ip_network(subnet["cidr"])
        for other in bindings.sites(session, self._networks):
            theirs = ipaddress.ip_network(other.cidr)
            if other.id != subnet["id"] and mine.version == theirs.version and mine.overlaps(theirs):
                raise RefusedByAclflow(
                    reason=f"{mine} overlaps {theirs}, a subnet of the same address scope: hosts route by address"
                )
        journal.note(session, journal.PROJECT, subnet["project_id"])

    def delete_subnet_precommit(self, context: Any) -> None:
        if self._has(context.network.network_segments):
            journal.note(context._plugin_context.session, journal.PROJECT, context.current["project_id"])

    def update_network_precommit(self, context: Any) -> None:
        """Note the owner of a network that is shared from now on, or no more."""
        if self._has(context.network_segments) and context.current["shared"] != context.original["shared"]:
            journal.note(context._plugin_context.session, journal.PROJECT, context.current["project_id"])

    def _check_scope(self, session: Any, subnet: Any) -> None:
        wanted = self._settings.address_scope
        if not wanted:
            return
        pool = session.query(models_v2.SubnetPool).filter_by(id=subnet.get("subnetpool_id")).one_or_none()
        if pool is None or pool.address_scope_id != wanted:
            raise RefusedByAclflow(reason=f"the subnet is not of address scope {wanted}, which these hosts serve")

    # ---------------------------------------------------------------------------------------------------------- ports

    def create_port_precommit(self, context: Any) -> None:
        self._port_changes(context)

    def update_port_precommit(self, context: Any) -> None:
        self._port_changes(context)

    def delete_port_precommit(self, context: Any) -> None:
        if self._has(context.network.network_segments):
            self._note_port(context)

    def _port_changes(self, context: Any) -> None:
        """Refuse what a port cannot be here; note it, and hold it back if it goes to a host."""
        if not self._has(context.network.network_segments):
            return
        port, original = context.current, context.original or {}
        reason = self._refusal(context)
        if reason is not None:
            raise RefusedByAclflow(reason=reason)
        is_moved = bool(context.host) and context.host != context.original_host
        if is_moved or (context.host and _is_other(port, original)):
            provisioning_blocks.add_provisioning_component(
                context._plugin_context, port["id"], resources.PORT, bindings.DRIVER
            )
        if is_moved:
            _bring_down(context)
        elif _becomes_active(port, original) and _is_held_back(context):
            raise RefusedByAclflow(reason=f"port {port['id']} is not in force yet on {context.host}")
        if context.host or context.original_host:
            self._note_port(context)

    def _note_port(self, context: Any) -> None:
        session, port = context._plugin_context.session, context.current["id"]
        states = (context.current, context.original or {})
        allowed = {pair["ip_address"] for each in states for pair in each.get("allowed_address_pairs") or ()}
        for each in (port, *sorted(bindings.sharers(session, port, allowed))):
            journal.note(session, journal.PORT, each)

    def _refusal(self, context: Any) -> str | None:
        """Say what a port wants that these networks do not have; None: nothing."""
        port = context.current
        if port["device_owner"] in _ROUTED:
            return "these networks are routed by the hosts: they have no routers and no floating IPs of Neutron"
        if not port.get("project_id"):
            return None
        for pair in port.get("allowed_address_pairs") or ():
            if pair.get("mac_address") and pair["mac_address"].lower() != port["mac_address"].lower():
                return f"allowed address {pair['ip_address']} is to have another MAC address than the port"
        return self._foreign(context)

    def _foreign(self, context: Any) -> str | None:
        """Say which of a port's addresses cannot be its project's."""
        port, session = context.current, context._plugin_context.session
        if port["device_owner"].startswith(constants.DEVICE_OWNER_NETWORK_PREFIX):
            return None
        if port["network_id"] in bindings.shared_networks(session):
            return None
        mine = [each for each in bindings.sites(session, self._networks) if each.network == port["network_id"]]
        for site in mine:
            if site.project != port["project_id"]:
                return f"subnet {site.cidr} is another project's, and the network is not shared"
        own = [ipaddress.ip_network(each.cidr) for each in mine]
        for pair in port.get("allowed_address_pairs") or ():
            wanted = ipaddress.ip_network(pair["ip_address"], strict=False)
            if not any(wanted.version == each.version and wanted.subnet_of(each) for each in own):
                return f"allowed address {pair['ip_address']} is of no subnet of the port's network"
        return None

    # -------------------------------------------------------------------------------------------------------- binding

    def bind_port(self, context: Any) -> None:
        """Bind to the bridge of a host that the service knows."""
        segment = next((each for each in context.segments_to_bind if self._has([each])), None)
        if segment is None:
            return
        port = context.current
        if port[portbindings.VNIC_TYPE] != portbindings.VNIC_NORMAL:
            LOG.error("port %s is not bound: vnic_type %s", port["id"], port[portbindings.VNIC_TYPE])
            return
        reason = self._hosts.refuse(context.host)
        if reason is not None:
            LOG.error("port %s is not bound: %s", port["id"], reason)
            return
        context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OVS, dict(self._details))

    def _has(self, segments: Any) -> bool:
        return bindings.is_ours(segments, self._networks)


def _bring_down(context: Any) -> None:
    """Have a port that goes to another host not be active, whatever was written about the host before."""
    port = context.current
    found = context._plugin_context.session.query(models_v2.Port).filter_by(id=port["id"]).one_or_none()
    if found is not None and found.status == constants.PORT_STATUS_ACTIVE:
        found.status = port["status"] = constants.PORT_STATUS_DOWN


def _becomes_active(port: Any, original: Any) -> bool:
    active = constants.PORT_STATUS_ACTIVE
    return port["status"] == active and original.get("status", active) != active


def _is_held_back(context: Any) -> bool:
    """Tell whether a port still has a provisioning block.

    Neutron sets a status that it decided on before: it tries again where the port went to another host meanwhile.
    """
    return provisioning_blocks.is_object_blocked(context._plugin_context, context.current["id"], resources.PORT)


def _is_other(port: Any, original: Any) -> bool:
    """Tell whether a port that is not active changed in a way that its rows show."""
    if port["status"] == constants.PORT_STATUS_ACTIVE:
        return False
    return any(port.get(each) != original.get(each) for each in ("mac_address", "fixed_ips", "allowed_address_pairs"))

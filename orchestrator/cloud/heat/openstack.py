"""The real OpenStack: openstacksdk for Keystone, Nova and Neutron, python-heatclient for Heat.

A token that expired or was revoked is answered 401; the session then signs in anew and asks once more, so callers do
not see it. Nothing is asked before the first call: a service starts while its cloud is away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import heatclient.exc
import keystoneauth1.exceptions
import openstack as sdk
import openstack.connection
import openstack.exceptions
import yaml
from heatclient import client as heat_client
from heatclient import exc as heat_errors
from heatclient.common import template_utils

from orchestrator.cloud.endpoints import MachinePort
from orchestrator.cloud.heat.api import Member, Port, Quota, Server, Stack, Standing
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.cloud.heat.words import in_words, is_over_quota
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Forbidden,
    NotFound,
    Refused,
    TooLarge,
    Unauthenticated,
    Unreachable,
)
from orchestrator.policy.addresses import Prefix, read_mac

_NO_SUCH_SERVICE = (
    keystoneauth1.exceptions.EndpointNotFound,
    keystoneauth1.exceptions.CatalogException,
    openstack.exceptions.NotSupported,
    openstack.exceptions.ServiceDisabledException,
)
_NOT_CONFIGURED = (
    openstack.exceptions.ConfigException,
    keystoneauth1.exceptions.MissingRequiredOptions,
    keystoneauth1.exceptions.NoMatchingPlugin,
    keystoneauth1.exceptions.MissingAuthPlugin,
)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise the libraries' errors inside as ours.

    `what` is the request: ``Heat for the stack x``.
    """
    try:
        yield
    except _NO_SUCH_SERVICE as error:
        raise Refused(f"asked {what}: this cloud has no such service: {error}") from None
    except _NOT_CONFIGURED as error:
        raise BadInput(f"clouds.yaml does not suffice: {' '.join(str(error).split())}", place="cloud") from None
    except heatclient.exc.HTTPException as error:
        raise of_status(error.code, what, str(error)) from None
    except keystoneauth1.exceptions.HttpError as error:
        raise of_status(error.http_status, what, str(error.message)) from None
    except openstack.exceptions.HttpException as error:
        raise of_status(error.status_code, what, str(error.details or error.message or error)) from None
    except (
        keystoneauth1.exceptions.ClientException,
        heatclient.exc.BaseException,
        openstack.exceptions.SDKException,
    ) as error:
        raise Unreachable(f"asked {what}, got no answer: {' '.join(str(error).split())}") from None


def of_status(status: int | None, what: str, message: str) -> AclflowError:
    """Return the error of an answer.

    5xx is no answer: the request may have been carried out, or may still be.
    """
    words = in_words(message)
    text = f"asked {what}: {words}"
    if status is None or status >= 500:
        return Unreachable(f"asked {what}, answered {status}: {words}")
    if status == 401:
        return Unauthenticated(f"asked {what}: OpenStack does not take the credentials of clouds.yaml: {words}")
    if status in (403, 413) or (status == 400 and is_over_quota(message)):
        return TooLarge(text) if status == 413 or is_over_quota(message) else Forbidden(text)
    if status == 404:
        return NotFound(text)
    if status in (408, 409, 429):
        return Busy(text)
    return Refused(text)


GROUP = "group"
"""The group's name in every template with one."""
_SIDES = {"left_port": "left", "right_port": "right"}
_PORTS_AT_ONCE = 50
"""An id has 36 letters, and a request's line 8 KB."""
_GONE = "DELETE_COMPLETE"
_SERVICE_MISSING = "99001"
"""That this cloud lacks the service of a resource (Aodh, say) is no fault of a template: a condition leaves it out."""


class OpenStackClient:
    """One project of one cloud, as clouds.yaml names it."""

    def __init__(self, settings: HeatSettings) -> None:
        self._settings = settings
        self._opening = threading.Lock()
        self._cloud: openstack.connection.Connection | None = None
        self._stacks: Any = None

    def stack(self, name: str) -> Stack | None:
        """Return the stack of a name."""
        with asking(f"Heat for the stack {name}"):
            try:
                found = self._heat.stacks.get(name, resolve_outputs=False)
            except heat_errors.HTTPNotFound:
                return None
        return None if found.stack_status == _GONE else _make_stack(found, found.parameters)

    def stacks(self, tag: str) -> tuple[Stack, ...]:
        """Return the stacks with a tag."""
        with asking("Heat for its stacks"):
            found = list(self._heat.stacks.list(tags=tag))
        return tuple(_make_stack(each, {}) for each in found if each.stack_status != _GONE)

    def create_stack(self, name: str, template: str, parameters: Mapping[str, object], tag: str) -> None:
        """Begin to create one, from a template and the environment file."""
        files, body = _read_template(self._settings, template)
        more, environment = _read_environment(self._settings)
        with asking(f"Heat to create the stack {name}"):
            self._heat.stacks.create(
                stack_name=name,
                template=body,
                files={**files, **more},
                environment=environment,
                parameters=dict(parameters),
                tags=tag,
                disable_rollback=True,
                timeout_mins=self._settings.stack_minutes,
            )

    def update_stack(self, stack: Stack, parameters: Mapping[str, object]) -> None:
        """Begin to change some parameters."""
        with asking(f"Heat to change the stack {stack.name}"):
            self._heat.stacks.update(
                stack.id,
                existing=True,
                parameters=dict(parameters),
                disable_rollback=True,
                timeout_mins=self._settings.stack_minutes,
            )

    def delete_stack(self, stack: Stack) -> None:
        """Begin to delete a stack."""
        with asking(f"Heat to delete the stack {stack.name}"):
            try:
                self._heat.stacks.delete(stack.id)
            except heat_errors.HTTPNotFound:
                return

    def members(self, stack: Stack) -> tuple[Member, ...]:
        """Return the members of the stack's group, with their parts."""
        with asking(f"Heat for what the stack {stack.name} is made of"):
            try:
                found = self._heat.resources.list(stack.id, nested_depth=2)
            except heat_errors.HTTPNotFound:
                return ()
        parts: dict[str, list[Any]] = {}
        for each in found:
            parts.setdefault(_stack_of(each), []).append(each)
        members = (each for each in found if getattr(each, "parent_resource", None) == GROUP)
        return tuple(_make_member(each, parts.get(each.physical_resource_id, [])) for each in members)

    def removed_members(self, stack: Stack) -> frozenset[str]:
        """Names that will never be given again; none where the group was not even begun."""
        with asking(f"Heat for the group of the stack {stack.name}"):
            try:
                group = self._heat.resources.get(stack.id, GROUP, with_attr=["removed_rsrc_list"])
            except heat_errors.HTTPNotFound:
                return frozenset()
        return frozenset(str(name) for name in group.attributes.get("removed_rsrc_list") or ())

    def servers(self, stack_name: str) -> Mapping[str, Server]:
        """The virtual machines whose names begin with the stack's."""
        with asking(f"Nova for the servers of {stack_name}"):
            found = list(self._connection.compute.servers(details=True, name=f"^{stack_name}-"))
        return {each.id: _make_server(each) for each in found}

    def ports(self, ids: Sequence[str]) -> Mapping[str, Port]:
        """Return those of some ports that are there."""
        found: dict[str, Port] = {}
        for start in range(0, len(ids), _PORTS_AT_ONCE):
            with asking("Neutron for ports"):
                wanted = {"id": list(ids[start : start + _PORTS_AT_ONCE]), "fields": ["id", "mac_address"]}
                answer = self._connection.network.get("/ports", params=wanted)
                sdk.exceptions.raise_from_response(answer)
            for each in answer.json()["ports"]:
                found[each["id"]] = Port(each["id"], read_mac(each["mac_address"]))
        return found

    def machine_ports(self, project: str, network: str | None = None) -> tuple[MachinePort, ...]:
        """Return the ports of a project's virtual machines, of one network or of all.

        Only administrators see the hosts.
        """
        with asking(f"Neutron for the ports of the project {project}"):
            wanted = {"project_id": self._project(project)}
            if network is not None:
                wanted["network_id"] = self._find_network(network)
            answer = self._connection.network.get("/ports", params=wanted)
            sdk.exceptions.raise_from_response(answer)
        return tuple(_machine_port(each) for each in answer.json()["ports"] if _is_of_machine(each))

    def quotas(self, flavor: str, there: int) -> tuple[Quota, ...]:
        """Return Nova's quotas of what a VNF takes."""
        with asking("Nova for quotas"):
            answer = self._connection.compute.get("/limits")
            sdk.exceptions.raise_from_response(answer)
            size = self._connection.compute.find_flavor(flavor)
        limits = answer.json()["limits"]["absolute"]
        known = [
            _make_quota("instances", limits, "maxTotalInstances", limits["totalInstancesUsed"], 1),
            _make_quota("members of a server group", limits, "maxServerGroupMembers", there, 1),
        ]
        if size is not None:
            known.append(_make_quota("cores", limits, "maxTotalCores", limits["totalCoresUsed"], size.vcpus))
            known.append(_make_quota("MB of memory", limits, "maxTotalRAMSize", limits["totalRAMUsed"], size.ram))
        return tuple(known)

    def signal(self, stack: Stack, resource: str) -> None:
        """Let a scaling policy act."""
        with asking(f"Heat to signal {resource} of the stack {stack.name}"):
            self._heat.resources.signal(stack.id, resource)

    def webhook(self, stack: Stack, resource: str) -> str:
        """Return the URL that triggers a scaling policy.

        Raises Busy while Heat has not made it yet.
        """
        with asking(f"Heat for {resource} of the stack {stack.name}"):
            found = self._heat.resources.get(stack.id, resource, with_attr=["alarm_url"])
        url = found.attributes.get("alarm_url")
        if not url:
            raise Busy(f"{resource} of the stack {stack.name} has no webhook yet: Heat is still making it")
        return str(url)

    def is_scaling(self, stack: Stack) -> bool:
        """Return whether a stack's AutoScalingGroup is changing.

        It says so before the nested stack begins, and after.
        """
        with asking(f"Heat for the group of the stack {stack.name}"):
            metadata = self._heat.resources.metadata(stack.id, GROUP)
            group = self._heat.resources.get(stack.id, GROUP)
            if not group.physical_resource_id:  # it was never begun
                return False
            nested = self._heat.stacks.get(group.physical_resource_id, resolve_outputs=False)
        return bool(metadata.get("scaling_in_progress")) or nested.stack_status.endswith("_IN_PROGRESS")

    def mark_unhealthy(self, stack: Stack, member: str, because: str) -> None:
        """Have a member of its AutoScalingGroup counted as failed: the next growing replaces it."""
        with asking(f"Heat to mark {member} of the stack {stack.name}"):
            group = self._heat.resources.get(stack.id, GROUP)
            self._heat.resources.mark_unhealthy(group.physical_resource_id, member, True, because)

    def validate(self, template: str) -> Mapping[str, Any]:
        """Return the parameters of a template, as Heat reads it.

        Raises Refused where Heat refuses it.
        """
        files, body = _read_template(self._settings, template)
        with asking(f"Heat to validate {template}"):
            answer: Mapping[str, Any] = self._heat.stacks.validate(
                template=body, files=files, ignore_errors=_SERVICE_MISSING
            )
        return answer

    def close(self) -> None:
        """Give connections back."""
        with self._opening:
            if self._cloud is not None:
                self._cloud.close()
            self._cloud = self._stacks = None

    @property
    def session(self) -> Any:
        """Keystone's session, for what is asked beside."""
        return self._connection.session

    @property
    def _connection(self) -> openstack.connection.Connection:
        with self._opening:
            if self._cloud is None:
                self._cloud = _connect(self._settings)
            return self._cloud

    def _project(self, wanted: str) -> str:
        """A project's id; our own may be told by name, whoever we are. Raises NotFound."""
        cloud = self._connection
        own = cloud.current_project
        if wanted in (own.id, own.name):
            return str(own.id)
        try:
            found = cloud.identity.find_project(wanted)
        except sdk.exceptions.ForbiddenException:
            found = None
        if found is None:
            raise NotFound(f"there is no project '{wanted}', or these credentials do not see it", place="--project")
        return str(found.id)

    def _find_network(self, wanted: str) -> str:
        """A network's id. Raises NotFound."""
        found = self._connection.network.find_network(wanted)
        if found is None:
            raise NotFound(f"there is no network '{wanted}', or these credentials do not see it", place="--network")
        return str(found.id)

    @property
    def _heat(self) -> Any:
        cloud = self._connection
        with self._opening:
            if self._stacks is None:
                self._stacks = heat_client.Client(
                    "1", session=cloud.session, region_name=cloud.config.get_region_name()
                )
            return self._stacks


def _connect(settings: HeatSettings) -> openstack.connection.Connection:
    files = [str(settings.clouds_file)] if settings.clouds_file else None
    config = sdk.config.OpenStackConfig(config_files=files)
    region = config.get_one(cloud=settings.cloud, api_timeout=settings.request_s)
    return openstack.connection.Connection(config=region, app_name="aclflow")


def _read_template(settings: HeatSettings, name: str) -> tuple[dict[str, Any], Any]:
    """A template with all that it refers to."""
    return template_utils.get_template_contents(str(settings.template(name)))  # type: ignore[no-any-return]


def _read_environment(settings: HeatSettings) -> tuple[dict[str, Any], dict[str, Any]]:
    path = settings.environment
    try:
        files, environment = template_utils.process_environment_and_files(env_path=str(path))
    except (OSError, ValueError, yaml.YAMLError, heat_errors.BaseException) as error:
        raise BadInput(
            f"the environment file cannot be read: {' '.join(str(error).split())}", place=str(path)
        ) from None
    return files, environment


def _make_stack(found: Any, parameters: Mapping[str, str]) -> Stack:
    standing = Standing.read(found.stack_status, found.stack_status_reason)
    return Stack(found.id, found.stack_name, standing, dict(parameters))


def _make_member(found: Any, parts: Sequence[Any]) -> Member:
    ids = {each.resource_name: each.physical_resource_id for each in parts if each.physical_resource_id}
    return Member(
        found.resource_name,
        Standing.read(found.resource_status, found.resource_status_reason),
        ids.get("server"),
        {side: ids[name] for name, side in _SIDES.items() if name in ids},
        sum(each.resource_status.endswith("_COMPLETE") and "INIT" not in each.resource_status for each in parts),
        len(parts),
    )


def _stack_of(part: Any) -> str:
    """Return the id of a resource's stack.

    While a member is replaced, two have its name.
    """
    links = {each["rel"]: each["href"] for each in part.links}
    return str(links.get("stack", "")).rpartition("/")[2]


def _make_server(found: Any) -> Server:
    addresses = tuple(each["addr"] for network in (found.addresses or {}).values() for each in network)
    fault = found.fault.get("message", "") if isinstance(found.fault, dict) else ""
    return Server(found.id, found.status, addresses, fault)


def _is_of_machine(port: Mapping[str, Any]) -> bool:
    return str(port.get("device_owner", "")).startswith("compute:")


def _machine_port(found: Mapping[str, Any]) -> MachinePort:
    """Read a port's own addresses, and others that it was allowed to use."""
    pairs = (pair["ip_address"] for pair in found.get("allowed_address_pairs") or ())
    addresses = dict.fromkeys([*(each["ip_address"] for each in found["fixed_ips"]), *pairs])
    mac = read_mac(found["mac_address"])
    host = found.get("binding:host_id") or None
    return MachinePort(found["id"], found["device_id"], mac, tuple(map(Prefix.parse, addresses)), host)


def _make_quota(what: str, limits: Mapping[str, int], key: str, used: int, each: int) -> Quota:
    limit = limits.get(key, -1)
    return Quota(what, limit if limit >= 0 else None, used, each)

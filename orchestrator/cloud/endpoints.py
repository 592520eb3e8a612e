"""Compare the ports of a project's virtual machines with a tenant's endpoints. Pure.

An endpoint is a port: its device on the host (``tap`` and the beginning of the port's id), its address on the wire, the
addresses that it may use. None of these changes when Nova moves the machine to another host, and all hosts of a domain
hold the same rules: so a migration within a domain changes nothing in any program. Only the endpoint's place changes,
and that must still be a host of the domain: on any other nobody filters for it.

Behind the leg of a VNF-ACL endpoints share the leg as their port and are told apart by MAC address. Their hosts are
Nova's, none of the domain, so a place says nothing of who filters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Endpoint, TenantId

_TAP = 11
"""So many letters of a port's id are in the name of its device: ``tap`` and these are an interface's 14."""
_OF_NEUTRON = re.compile(r"tap[0-9a-f-]{11}\Z")
_PORT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def device_of(port_id: str) -> str:
    """The interface that a port is on its host's switch."""
    return f"tap{port_id[:_TAP]}"


@dataclass(frozen=True, slots=True)
class MachinePort:
    """A virtual machine's port: its permitted addresses and prefixes, and its host.

    The host is None if there is none, or if these credentials may not see it.
    """

    id: str
    server: str
    mac: int
    prefixes: tuple[Prefix, ...]
    host: str | None = None

    def endpoint(self, tenant: TenantId, name: str | None = None, leg: str = "") -> Endpoint:
        """Return the port as an endpoint of a tenant, by its own device or behind a leg that others share.

        It keeps the name that is known, else gets the port's id.
        """
        return Endpoint(name or self.id, tenant, leg or device_of(self.id), self.mac, self.prefixes, bool(leg))


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A port's endpoint, its host, and whether that is a host of the domain."""

    endpoint: Endpoint
    host: str | None
    inside: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The endpoints to write and to delete so that aclflow matches OpenStack, with their hosts."""

    written: tuple[Endpoint, ...]
    gone: tuple[str, ...]
    where: tuple[Whereabouts, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing is to be written or forgotten."""
        return not self.written and not self.gone

    @property
    def outside(self) -> tuple[Whereabouts, ...]:
        """Those that are on a host that does not belong to the domain."""
        return tuple(each for each in self.where if each.host is not None and not each.inside)


def compare_endpoints(
    ports: Sequence[MachinePort], tenant: TenantId, known: Iterable[Endpoint], hosts: Iterable[str], leg: str = ""
) -> Comparison:
    """A project's ports beside the endpoints of its tenant and the hosts of its domain.

    With a leg they are compared with the endpoints behind that one. Endpoints that are no ports of Neutron's were
    brought in by somebody else, and stay. A port without addresses may send nothing, so it is no endpoint.
    """
    there = set(hosts)
    used = [port for port in ports if port.prefixes]
    mine = {_key(each, leg): each for each in known if each.tenant == tenant and (not leg or each.port == leg)}
    made = [port.endpoint(tenant, leg=leg) for port in used]
    kept = [_keep_name(each, mine.get(_key(each, leg))) for each in made]
    keys = {_key(each, leg) for each in made}
    written = tuple(each for each in kept if not _is_same(mine.get(_key(each, leg)), each))
    gone = tuple(each.name for key, each in mine.items() if key not in keys and _is_of_neutron(each, leg))
    where = tuple(
        Whereabouts(each, port.host, bool(leg) or port.host in there) for port, each in zip(used, kept, strict=True)
    )
    return Comparison(written, gone, where)


def _key(endpoint: Endpoint, leg: str) -> str | int:
    """What tells an endpoint from others: its device, or its MAC address behind a leg."""
    return endpoint.mac if leg else endpoint.port


def _is_of_neutron(endpoint: Endpoint, leg: str) -> bool:
    return bool(_PORT_ID.match(endpoint.name) if leg else _OF_NEUTRON.match(endpoint.port))


def _keep_name(made: Endpoint, known: Endpoint | None) -> Endpoint:
    return made if known is None else replace(made, name=known.name)


def _is_same(known: Endpoint | None, made: Endpoint) -> bool:
    return (
        known is not None
        and replace(known, prefixes=()) == replace(made, prefixes=())
        and (set(known.prefixes) == set(made.prefixes))
    )

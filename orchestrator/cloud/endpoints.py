"""Compare the ports of a project's virtual machines with a tenant's endpoints. Pure.

An endpoint is a port: its device on the host (``tap`` and the beginning of the port's id), its address on the wire, the
addresses that it may use. None of these changes when Nova moves the machine to another host, and all hosts of a domain
hold the same rules: so a migration within a domain changes nothing in any program. Only the endpoint's place changes,
and that must still be a host of the domain: on any other nobody filters for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Endpoint, TenantId

_TAP = 11
"""So many letters of a port's id are in the name of its device: ``tap`` and these are an interface's 14."""
_OF_NEUTRON = re.compile(r"tap[0-9a-f-]{11}\Z")


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

    def endpoint(self, tenant: TenantId, name: str | None = None) -> Endpoint:
        """Return the port as an endpoint of a tenant.

        It keeps the name that is known, else gets the port's id.
        """
        return Endpoint(name or self.id, tenant, device_of(self.id), self.mac, self.prefixes)


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
    ports: Sequence[MachinePort], tenant: TenantId, known: Iterable[Endpoint], hosts: Iterable[str]
) -> Comparison:
    """A project's ports beside the endpoints of its tenant and the hosts of its domain.

    Endpoints whose device is no port of Neutron's were brought in by somebody else, and stay. A port without addresses
    may send nothing, so it is no endpoint.
    """
    mine = {each.port: each for each in known if each.tenant == tenant}
    there = set(hosts)
    used = [port for port in ports if port.prefixes]
    names = {device_of(port.id): port for port in used}
    endpoints = [(port, port.endpoint(tenant, _name_endpoint(mine.get(device_of(port.id))))) for port in used]
    written = tuple(made for _, made in endpoints if not _is_same(mine.get(made.port), made))
    gone = tuple(each.name for device, each in mine.items() if _OF_NEUTRON.match(device) and device not in names)
    where = tuple(Whereabouts(made, port.host, port.host in there) for port, made in endpoints)
    return Comparison(written, gone, where)


def _name_endpoint(known: Endpoint | None) -> str | None:
    return None if known is None else known.name


def _is_same(known: Endpoint | None, made: Endpoint) -> bool:
    return known is not None and known.mac == made.mac and set(known.prefixes) == set(made.prefixes)

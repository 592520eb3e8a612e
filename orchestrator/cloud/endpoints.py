"""Compare the ports of a project's virtual machines with a tenant's endpoints. Pure.

An endpoint is a port: its device on the host (``tap`` and the beginning of the port's id), its address on the wire, the
addresses that it may use. None of these changes when Nova moves the machine to another host, and all hosts of a domain
hold the same rules: so a migration within a domain changes nothing in any program. Only the endpoint's place changes,
and that must still be a host of the domain: on any other nobody filters for it.

Behind the leg of a VNF-ACL endpoints share the leg as their port and are told apart by MAC address. Each VNF-ACL has a
leg of its own name, so there a machine that moves to another host gets another port, which is a change like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
        """Return the port as an endpoint of a tenant.

        It is reached by its own device, or behind a leg that others share. It keeps the name that is known, else gets
        the port's id.
        """
        return Endpoint(name or self.id, tenant, leg or device_of(self.id), self.mac, self.prefixes, bool(leg))


@dataclass(frozen=True, slots=True)
class Legs:
    """The legs of VNF-ACLs that machines live behind.

    Compute hosts in `by_host` have one each; all others share `elsewhere`.
    """

    by_host: Mapping[str, str]
    elsewhere: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The interfaces of all legs."""
        return frozenset(filter(None, (*self.by_host.values(), self.elsewhere)))

    def find_leg(self, host: str | None) -> str:
        """The leg of a host's machines; empty where there is none."""
        return self.by_host.get(host or "", self.elsewhere)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A port's endpoint, its host, and whether somebody filters for it there."""

    endpoint: Endpoint
    host: str | None
    inside: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The endpoints to write and to delete so that aclflow matches OpenStack, with their hosts.

    `lacking` says what is wrong with a host outside.
    """

    written: tuple[Endpoint, ...]
    gone: tuple[str, ...]
    where: tuple[Whereabouts, ...]
    lacking: str = "is no host of the domain"

    @property
    def is_same(self) -> bool:
        """Whether nothing is to be written or forgotten."""
        return not self.written and not self.gone

    @property
    def outside(self) -> tuple[Whereabouts, ...]:
        """Those that are on a host where nobody filters for them."""
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
    made = [(port, port.endpoint(tenant)) for port in ports if port.prefixes]
    kept = [(port, _keep_name(each, mine.get(each.port))) for port, each in made]
    written = tuple(each for _, each in kept if not _is_same(mine.get(each.port), each))
    devices = {each.port for _, each in made}
    gone = tuple(each.name for device, each in mine.items() if _OF_NEUTRON.match(device) and device not in devices)
    return Comparison(written, gone, tuple(Whereabouts(each, port.host, port.host in there) for port, each in kept))


def compare_behind_legs(
    ports: Sequence[MachinePort], tenant: TenantId, known: Iterable[Endpoint], legs: Legs
) -> Comparison:
    """A project's ports beside the endpoints of its tenant behind the legs of VNF-ACLs.

    Endpoints behind a leg that are not named like a port of Neutron's stay. A port on a host without a leg is outside:
    nothing is written of it.
    """
    mine = {each.mac: each for each in known if each.tenant == tenant and each.port in legs.names}
    used = [port for port in ports if port.prefixes]
    made = [(port, port.endpoint(tenant, leg=legs.find_leg(port.host))) for port in used]
    kept = [(port, _keep_name(each, mine.get(each.mac))) for port, each in made]
    where = tuple(Whereabouts(each, port.host, each.shared) for port, each in kept)
    written = tuple(each for _, each in kept if each.shared and not _is_same(mine.get(each.mac), each))
    there = {port.mac for port in used}
    gone = tuple(each.name for mac, each in mine.items() if _PORT_ID.match(each.name) and mac not in there)
    return Comparison(written, gone, where, lacking="has no leg")


def _keep_name(made: Endpoint, known: Endpoint | None) -> Endpoint:
    return made if known is None else replace(made, name=known.name)


def _is_same(known: Endpoint | None, made: Endpoint) -> bool:
    """Whether an endpoint is known as it is, in whatever order its prefixes are."""
    if known is None or set(known.prefixes) != set(made.prefixes):
        return False
    return replace(known, prefixes=()) == replace(made, prefixes=())

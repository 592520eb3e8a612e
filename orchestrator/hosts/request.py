"""An operator's request to make a machine a host, with its essential services. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.errors import AclflowError, BadInput
from orchestrator.hosts.switch import HOST_TLS, Datapath, Wanted
from orchestrator.policy.addresses import format_address, parse_address
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import Rule

LOCAL = "local"
"""The address that stands for the machine of the service itself."""


class Essential(Enum):
    """Services that every endpoint needs: protocol, and the server's port."""

    DHCP = ("udp", 67)
    DNS = ("udp", 53)
    DNS_TCP = ("tcp", 53)
    NTP = ("udp", 123)


_CALLED = {"dhcp": (Essential.DHCP,), "dns": (Essential.DNS, Essential.DNS_TCP), "ntp": (Essential.NTP,)}
SERVICES = tuple(_CALLED)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where somebody logs in to a machine, and as whom. Raises BadInput."""

    address: str
    user: str = "root"
    port: int = 22

    def __post_init__(self) -> None:
        if not self.address or self.address.startswith("-") or not self.address.replace("-", "a").isprintable():
            raise BadInput(f"'{self.address}' is no address of a machine", place="address")
        if any(letter in " \t'\"\\{}" for letter in self.address + self.user):
            raise BadInput("an address or a user has no blanks, quotes or braces", place="address")
        if not 1 <= self.port <= 65535:
            raise BadInput(f"port {self.port} is not in 1..65535", place="port")


@dataclass(frozen=True, slots=True)
class Onboarding:
    """A machine to be made a host: its switch, its controllers' addresses, its essential services.

    `controller` names a machine that a controller is to be installed on; without it those in the switch's
    `controllers` are there already. `essential` are addresses by service (`SERVICES`).
    """

    machine: Machine
    switch: Wanted
    controller: Machine | None = None
    essential: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.machine.address == LOCAL and self.controller is not None:
            raise BadInput(
                "beside the switch of the service's own machine no controller is installed", place="controller"
            )
        list(self.rules())

    def rules(self) -> Iterator[Rule]:
        """The operator's rules that let endpoints reach their essential services, and these answer. Raises BadInput."""
        for service, addresses in self.essential.items():
            if service not in _CALLED:
                raise BadInput(f"'{service}' is none of {', '.join(SERVICES)}", place="essential_services")
            for index, address in enumerate(addresses):
                try:
                    text = format_address(*parse_address(address))
                except AclflowError as error:
                    raise error.within(f"essential_services.{service}[{index}]") from None
                yield from _make_rules(service, text)

    def to_json(self) -> dict[str, Any]:
        """Return its form in a database; `from_json` reads it back."""
        switch = self.switch
        return {
            "machine": _write_machine(self.machine),
            "controller": _write_machine(self.controller) if self.controller else None,
            "essential": {service: list(addresses) for service, addresses in self.essential.items()},
            "switch": {
                "domain": switch.domain,
                "host": switch.host,
                "uplink": switch.uplink,
                "controllers": list(switch.controllers),
                "bridge": switch.bridge,
                "datapath_id": switch.datapath_id,
                "datapath": switch.datapath.value,
                "max_idle_ms": switch.max_idle_ms,
                "tls": switch.tls is not None,
                "ports": list(switch.ports),
                "adopt": switch.adopt,
            },
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Onboarding:
        """Read the output of `to_json`.

        Raises BadInput.
        """
        switch = dict(body["switch"])
        tls = HOST_TLS if switch.pop("tls") else None
        lists = {name: tuple(switch[name]) for name in ("controllers", "ports")}
        wanted = Wanted(**{**switch, **lists, "datapath": Datapath(switch["datapath"])}, tls=tls)
        controller = Machine(**body["controller"]) if body["controller"] else None
        essential = {service: tuple(addresses) for service, addresses in body["essential"].items()}
        return cls(Machine(**body["machine"]), wanted, controller, essential)


def controller_name(machine: Machine) -> str:
    """Return the name in its domain of the controller on a machine."""
    return f"controller-{machine.address}"


def merge_rules(before: Sequence[Rule], added: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return an operator's rules with the missing ones, by id, at the end."""
    known = {rule.id for rule in before}
    return (*before, *(rule for rule in added if rule.id not in known))


def _make_rules(service: str, address: str) -> Iterator[Rule]:
    for each in _CALLED[service]:
        protocol, port = each.value
        name = f"essential-{each.name.lower().replace('_', '-')}-{address}"
        shared = {"action": "permit", "protocol": protocol, "description": f"essential service: {service}"}
        there = {"destination": address, "destination_ports": str(port)}
        back = {"source": address, "source_ports": str(port)}
        yield rule_from_json({"id": name, **shared, **there})
        yield rule_from_json({"id": f"{name}-answers", **shared, **back})


def _write_machine(machine: Machine) -> dict[str, Any]:
    """Return a machine as a JSON object."""
    return {"address": machine.address, "user": machine.user, "port": machine.port}

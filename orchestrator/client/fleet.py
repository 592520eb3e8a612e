"""Calls of the client about fleets of firewall VNFs; `client.py` has all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from orchestrator.client.paths import domain_path, enforcer_path, once_header, quote_segment
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, Transport, document_of, generation_of, json_of
from orchestrator.errors import NotFound
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.fields import CARRIED, FRAGMENTS
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import parse_protocol
from orchestrator.scaling.capacity import Measured
from orchestrator.wire.firewalls import Firewall, Load
from orchestrator.wire.fleet import (
    CapacityVersion,
    CapacityVersions,
    Fleet,
    FleetDecision,
    FleetMember,
    FleetSample,
    FleetSamples,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Packets that a VNF is to be tried with, as of a generation."""

    generation: int
    packets: tuple[Packet, ...]


class FleetCalls:
    """Fleets of domains, what one VNF carries, and trials."""

    _service: Transport

    def fleet(self, domain: str) -> Fleet:
        """A domain's fleet. Raises NotFound where it has none."""
        return self._service.read_document(Fleet, _fleet_path(domain))

    def set_fleet(self, domain: str, changes: Mapping[str, Any]) -> Fleet:
        """Change settings of a fleet; the first call makes it.

        Those of `limits` and `patience` are changed one by one.

        Raises BadInput with the setting as its place, Stale where somebody else has just changed it.
        """
        try:
            known: str | None = f'"{self.fleet(domain).version}"'
        except NotFound:
            known = None
        return document_of(Fleet, self._service.write("PATCH", _fleet_path(domain), body=dict(changes), etag=known))

    def remove_fleet(self, domain: str) -> None:
        """Forget a fleet. Raises Conflict while any of its VNFs is there."""
        self._service.write("DELETE", _fleet_path(domain), etag=ANY_VERSION)

    def drain_member(self, domain: str, name: str) -> FleetMember:
        """Have a VNF drained and removed."""
        path = f"{_fleet_path(domain)}/members/{quote_segment(name)}/drain"
        return document_of(FleetMember, self._service.write("POST", path))

    def fleet_decisions(self, domain: str) -> Iterator[FleetDecision]:
        """Changes of size, the newest first."""
        return self._service.documents(FleetDecision, f"{_fleet_path(domain)}/decisions")

    def fleet_samples(self, domain: str) -> tuple[FleetSample, ...]:
        """Return the fleet's load of the last hour, oldest first."""
        return self._service.read_document(FleetSamples, f"{_fleet_path(domain)}/samples").items

    def capacities(self) -> tuple[CapacityVersion, ...]:
        """Return all versions of one VNF's capacity, newest first."""
        return self._service.read_document(CapacityVersions, "/v1/capacities").items

    def add_capacity(self, plane: str, measured: Sequence[Measured], source: str) -> CapacityVersion:
        """Have measurements count from now on. Raises BadInput where no model fits them."""
        body = {"plane": plane, "source": source, "measured": [asdict(each) for each in measured]}
        return document_of(CapacityVersion, self._service.write("POST", "/v1/capacities", body=body))

    # ------------------------------------------------------------------------------------------------ of an agent

    def trial(self, domain: str, enforcer: int) -> Trial | None:
        """Return the trial for an enforcement point's VNF now, or None."""
        answer = self._service.ask("GET", f"{enforcer_path(domain, enforcer)}/trial")
        if answer.status_code == HTTPStatus.NO_CONTENT:
            return None
        body = json_of(answer)
        return Trial(body["generation"], tuple(map(_packet, body["packets"])))

    def answer_trial(self, domain: str, enforcer: int, generation: int, came: Sequence[bool], held: int) -> None:
        """Tell which packets came through, and which generation was held then."""
        body = {"generation": generation, "came": list(came), "held": held}
        self._service.ask("PUT", f"{enforcer_path(domain, enforcer)}/trial", body=body)


def _fleet_path(domain: str) -> str:
    return f"{domain_path(domain)}/fleet"


def _packet(body: Json) -> Packet:
    family, source = parse_address(body["source"])
    _, destination = parse_address(body["destination"])
    protocol = body["protocol"] if isinstance(body["protocol"], int) else parse_protocol(body["protocol"])
    further = {each.name: body[each.name] for each in (*CARRIED, FRAGMENTS)}
    return Packet(family, source, destination, protocol, dscp=body.get("dscp", 0), **further)


class FirewallCalls:
    """Firewall VNFs of domains."""

    _service: Transport

    def firewalls(self, domain: str) -> Iterator[Firewall]:
        """The firewalls of a domain, by name."""
        return self._service.documents(Firewall, f"{domain_path(domain)}/firewalls")

    def add_firewall(self, domain: str, name: str, plane: str, *, key: str | None = None) -> int:
        """Onboard a firewall; returns the generation it must reach. Raises Conflict, and NotExpressible or TooLarge
        where it cannot carry what the domain's lists say."""
        path, body = f"{domain_path(domain)}/firewalls", {"name": name, "plane": plane}
        return generation_of(self._service.write("POST", path, body=body, headers=once_header(key)))

    def remove_firewall(self, domain: str, name: str) -> int:
        """Returns the new generation. Raises NotFound."""
        path = f"{domain_path(domain)}/firewalls/{quote_segment(name)}"
        return generation_of(self._service.write("DELETE", path, etag=ANY_VERSION))

    def report_load(self, domain: str, enforcer: int, load: Load) -> None:
        """Tell the load of the firewall that bears the enforcer's name."""
        self._service.ask("PUT", f"{enforcer_path(domain, enforcer)}/load", body=asdict(load))

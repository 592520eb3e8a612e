"""Calls of the client about fleets of firewall VNFs, and about the firewalls themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.client.calls import Calls
from orchestrator.client.paths import domain_path, once_header, quote_segment
from orchestrator.client.transport import ANY_VERSION, document_of, generation_of
from orchestrator.errors import NotFound
from orchestrator.scaling.capacity import Measured
from orchestrator.wire.firewalls import Firewall
from orchestrator.wire.fleet import (
    CapacityVersion,
    CapacityVersions,
    Fleet,
    FleetDecision,
    FleetMember,
    FleetSample,
    FleetSamples,
)


class FleetCalls(Calls):
    """Fleets of domains, and what one VNF carries."""

    def read(self, domain: str) -> Fleet:
        """A domain's fleet. Raises NotFound where it has none."""
        return self._service.read_document(Fleet, _fleet_path(domain))

    def configure(self, domain: str, changes: Mapping[str, Any]) -> Fleet:
        """Change settings of a fleet; the first call makes it.

        Those of `limits` and `patience` are changed one by one.

        Raises BadInput with the setting as its place, Stale where somebody else has just changed it.
        """
        try:
            known: str | None = f'"{self.read(domain).version}"'
        except NotFound:
            known = None
        return document_of(Fleet, self._service.write("PATCH", _fleet_path(domain), body=dict(changes), etag=known))

    def remove(self, domain: str) -> None:
        """Forget a fleet. Raises Conflict while any of its VNFs is there."""
        self._service.write("DELETE", _fleet_path(domain), etag=ANY_VERSION)

    def drain_member(self, domain: str, name: str) -> FleetMember:
        """Have a VNF drained and removed."""
        path = f"{_fleet_path(domain)}/members/{quote_segment(name)}/drain"
        return document_of(FleetMember, self._service.write("POST", path))

    def read_decisions(self, domain: str) -> Iterator[FleetDecision]:
        """Changes of size, the newest first."""
        return self._service.documents(FleetDecision, f"{_fleet_path(domain)}/decisions")

    def read_samples(self, domain: str) -> tuple[FleetSample, ...]:
        """Return the fleet's load of the last hour, oldest first."""
        return self._service.read_document(FleetSamples, f"{_fleet_path(domain)}/samples").items

    def read_capacities(self) -> tuple[CapacityVersion, ...]:
        """Return all versions of one VNF's capacity, newest first."""
        return self._service.read_document(CapacityVersions, "/v1/capacities").items

    def add_capacity(self, plane: str, measured: Sequence[Measured], source: str) -> CapacityVersion:
        """Have measurements count from now on. Raises BadInput where no model fits them."""
        body = {"plane": plane, "source": source, "measured": [asdict(each) for each in measured]}
        return document_of(CapacityVersion, self._service.write("POST", "/v1/capacities", body=body))

    # ------------------------------------------------------------------------------------------------ of an agent


def _fleet_path(domain: str) -> str:
    return f"{domain_path(domain)}/fleet"


class FirewallCalls(Calls):
    """Firewall VNFs of domains."""

    def read_all(self, domain: str) -> Iterator[Firewall]:
        """The firewalls of a domain, by name."""
        return self._service.documents(Firewall, f"{domain_path(domain)}/firewalls")

    def add(self, domain: str, name: str, plane: str, *, key: str | None = None) -> int:
        """Onboard a firewall; returns the generation it must reach. Raises Conflict, and NotExpressible or TooLarge
        where it cannot carry what the domain's lists say."""
        path, body = f"{domain_path(domain)}/firewalls", {"name": name, "plane": plane}
        return generation_of(self._service.write("POST", path, body=body, headers=once_header(key)))

    def remove(self, domain: str, name: str) -> int:
        """Returns the new generation. Raises NotFound."""
        path = f"{domain_path(domain)}/firewalls/{quote_segment(name)}"
        return generation_of(self._service.write("DELETE", path, etag=ANY_VERSION))

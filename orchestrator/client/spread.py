"""Calls of the client about firewalls: fleets of VNFs, and how traffic is spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.client.calls import Calls, domain_path, enforcer_path, once_header, quote_segment
from orchestrator.client.points import Held
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, document_of, generation_of
from orchestrator.errors import NotFound
from orchestrator.program.wire import STREAM_MEDIA_TYPE, Received, decode, frames
from orchestrator.scaling.capacity import Measured
from orchestrator.wire.firewalls import (
    CapacityVersion,
    CapacityVersions,
    Firewall,
    Fleet,
    FleetDecision,
    FleetMember,
    FleetSample,
    FleetSamples,
)


@dataclass(frozen=True, slots=True)
class Link:
    """A firewall's link: the spreading switch's interface, and the firewall's MAC address."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A firewall that traffic is spread over; its `number` is its own in the domain.

    `state`: serving or draining.
    """

    name: str
    number: int
    left: Link
    right: Link
    state: str = "serving"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """A firewall of a spread, and how many of the 256 buckets it owns.

    `given_up`: the switch hears nothing of it, and sends what it owns to others.
    """

    carrier: Carrier
    buckets: int
    given_up: bool = False

    @classmethod
    def of(cls, body: Json) -> Sharing:
        left, right = Link(**body["left"]), Link(**body["right"])
        carrier = Carrier(body["name"], body["number"], left, right, body["state"], body["weight"])
        return cls(carrier, body["buckets"], body["given_up"])


@dataclass(frozen=True, slots=True)
class SpreadSeen:
    """The spreading of a domain's traffic at a generation.

    `enforced` is the newest one that the spreading switch was read back at (0: none), `trouble` the fault there.
    """

    generation: int
    enforced: int
    stateful: bool
    synchronised: bool
    firewalls: tuple[Sharing, ...]
    trouble: str | None

    @property
    def given_up(self) -> tuple[str, ...]:
        """The firewalls that the switch has given up."""
        return tuple(each.carrier.name for each in self.firewalls if each.given_up)

    @property
    def carrying(self) -> tuple[str, ...]:
        """The firewalls that carry the traffic now."""
        return tuple(each.carrier.name for each in self.firewalls if each.buckets and not each.given_up)

    @property
    def etag(self) -> str:
        """The ETag that it was read at."""
        return f'"{self.generation}"'

    @classmethod
    def of(cls, body: Json) -> SpreadSeen:
        firewalls = tuple(map(Sharing.of, body["firewalls"]))
        flags = body["stateful"], body["synchronised"]
        return cls(body["generation"], body["enforced"], *flags, firewalls, body["trouble"])


class SpreadCalls(Calls):
    """Spreading switches of domains."""

    def read(self, domain: str) -> SpreadSeen:
        """How a domain's traffic is spread over its firewalls. Raises NotFound where it is not."""
        return SpreadSeen.of(self._service.read(f"{domain_path(domain)}/spread"))

    def configure(
        self,
        domain: str,
        firewalls: Iterable[Carrier],
        *,
        stateful: bool = False,
        synchronised: bool = False,
        etag: str = ANY_VERSION,
    ) -> int:
        """Spread a domain's traffic over these firewalls and no others; the generation. Raises NotFound, Stale."""
        body = {"firewalls": [asdict(each) for each in firewalls], "stateful": stateful, "synchronised": synchronised}
        path = f"{domain_path(domain)}/spread"
        return generation_of(self._service.write("PUT", path, body=body, etag=etag))

    def follow(self, domain: str, held: Held | None = None, *, lasts_s: float = 60.0) -> Iterator[Received | None]:
        """Yield the spreading switch's programs as they come; see `Client.follow_program`."""
        query = {
            "wait": lasts_s,
            "have": held.digest.hex() if held else None,
            "generation": held.generation if held else None,
        }
        path = f"{domain_path(domain)}/spread/stream"
        with self._service.stream(path, query, {"Accept": STREAM_MEDIA_TYPE}) as chunks:
            for body in frames(chunks):
                yield decode(body) if body else None

    def report(self, domain: str, enforcer: int, generation: int, trouble: str | None) -> None:
        """Report the spreading switch's generation (0: none is known) and its fault."""
        path = f"{enforcer_path(domain, enforcer)}/spread"
        self._service.ask("PUT", path, body={"generation": generation, "trouble": trouble})

    def report_links(self, domain: str, enforcer: int, down: Iterable[str]) -> None:
        """Report the interfaces that the spreading switch finds down."""
        path = f"{enforcer_path(domain, enforcer)}/spread/links"
        self._service.ask("PUT", path, body={"down": sorted(down)})


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

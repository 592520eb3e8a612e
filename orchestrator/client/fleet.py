"""Calls of the client about fleets of firewall VNFs; `client.py` has all others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from orchestrator.client.paths import domain_path, enforcer_path, quoted
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, Transport, json_of
from orchestrator.errors import NotFound
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import parse_protocol
from orchestrator.scaling.capacity import Measured


@dataclass(frozen=True, slots=True)
class Trial:
    """Packets that a VNF is to be tried with, as of a generation."""

    generation: int
    packets: tuple[Packet, ...]


@dataclass(frozen=True, slots=True)
class FleetMember:
    """A VNF of a fleet: where it is in its life, since when and why; what its cloud and its agent say of it."""

    name: str
    number: int
    state: str
    since: dt.datetime
    asked: dt.datetime
    because: str
    progress: str
    well: bool
    served: dt.datetime | None
    address: str | None
    capped: str | None
    packets_pps: int | None
    bits_bps: int | None
    cpu_permille: int | None
    connections: int | None
    trouble: str | None

    @classmethod
    def of(cls, body: Json) -> FleetMember:
        times = {name: body[name] and dt.datetime.fromisoformat(body[name]) for name in ("since", "asked", "served")}
        return cls(**{**body, **times})


@dataclass(frozen=True, slots=True)
class Prediction:
    """Shares of a VNF's processors, means over those that serve: in use, and needed by the capacity model; by how much
    it is wrong, above 0 where it says too much (None: too idle to tell)."""

    busy: float
    predicted: float
    error: float | None

    def in_words(self) -> str:
        """For people."""
        said = f"processors: {self.busy:.0%} in use, {self.predicted:.0%} by the capacity model"
        if self.error is None:
            return f"{said}: too idle to compare"
        return f"{said}, which is {abs(self.error):.0%} too {'high' if self.error > 0 else 'low'}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A domain's fleet. `settings` as they were set; `wanted` and `because` as decided last, at `looked`, by the
    capacity model of a version; `prediction` is whether the model that counts now holds, where that can be said;
    `cloud` is what sort of cloud the service has, if any."""

    domain: str
    version: int
    settings: Mapping[str, Any]
    wanted: int | None
    because: str
    looked: dt.datetime | None
    model: int | None
    prediction: Prediction | None
    cloud: str | None
    members: tuple[FleetMember, ...]

    @classmethod
    def of(cls, body: Json) -> Fleet:
        members = tuple(map(FleetMember.of, body["members"]))
        looked = body["looked"] and dt.datetime.fromisoformat(body["looked"])
        prediction = body["prediction"] and Prediction(**body["prediction"])
        return cls(**{**body, "members": members, "looked": looked, "prediction": prediction})


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """A change of a fleet's size, with its reason and its author."""

    id: int
    at: dt.datetime
    before: int
    size: int
    because: str
    by: str

    @classmethod
    def of(cls, body: Json) -> FleetDecision:
        return cls(**{**body, "at": dt.datetime.fromisoformat(body["at"])})


@dataclass(frozen=True, slots=True)
class FleetSample:
    """What a fleet carried at a moment."""

    at: dt.datetime
    packets_pps: int
    bits_bps: int
    connections: int
    serving: int
    most_pps: int
    rules: int

    @classmethod
    def of(cls, body: Json) -> FleetSample:
        return cls(**{**body, "at": dt.datetime.fromisoformat(body["at"])})


@dataclass(frozen=True, slots=True)
class CapacityVersion:
    """A version of what one VNF carries: the times that a packet takes it, how wrong a prediction by the others is of a
    measurement (None: too few to tell), and how far was measured."""

    version: int
    plane: str
    created: dt.datetime
    source: str
    measurements: int
    base_s: float
    per_rule_s: float
    per_octet_s: float
    error: float | None
    most_rules: int
    current: bool

    @classmethod
    def of(cls, body: Json) -> CapacityVersion:
        return cls(**{**body, "created": dt.datetime.fromisoformat(body["created"])})


class FleetCalls:
    """Fleets of domains, what one VNF carries, and trials."""

    _service: Transport

    def fleet(self, domain: str) -> Fleet:
        """A domain's fleet. Raises NotFound where it has none."""
        return Fleet.of(json_of(self._service.ask("GET", _fleet_path(domain))))

    def set_fleet(self, domain: str, changes: Mapping[str, Any]) -> Fleet:
        """Change settings of a fleet, those of `limits` and `patience` one by one; the first time makes it.

        Raises BadInput with the setting as its place, Stale where somebody else has just changed it.
        """
        try:
            known: str | None = f'"{self.fleet(domain).version}"'
        except NotFound:
            known = None
        return Fleet.of(json_of(self._service.write("PATCH", _fleet_path(domain), body=dict(changes), etag=known)))

    def remove_fleet(self, domain: str) -> None:
        """Forget a fleet. Raises Conflict while any of its VNFs is there."""
        self._service.write("DELETE", _fleet_path(domain), etag=ANY_VERSION)

    def drain_member(self, domain: str, name: str) -> FleetMember:
        """Have a VNF drained and removed."""
        path = f"{_fleet_path(domain)}/members/{quoted(name)}/drain"
        return FleetMember.of(json_of(self._service.write("POST", path)))

    def fleet_decisions(self, domain: str) -> Iterator[FleetDecision]:
        """Changes of size, the newest first."""
        return map(FleetDecision.of, self._service.pages(f"{_fleet_path(domain)}/decisions"))

    def fleet_samples(self, domain: str) -> tuple[FleetSample, ...]:
        """What the fleet carried in the last hour, the oldest first."""
        body = json_of(self._service.ask("GET", f"{_fleet_path(domain)}/samples"))
        return tuple(map(FleetSample.of, body["items"]))

    def capacities(self) -> tuple[CapacityVersion, ...]:
        """What one VNF carries, every version, the newest first."""
        return tuple(map(CapacityVersion.of, json_of(self._service.ask("GET", "/v1/capacities"))["items"]))

    def add_capacity(self, plane: str, measured: Sequence[Measured], source: str) -> CapacityVersion:
        """Have measurements count from now on. Raises BadInput where no model fits them."""
        body = {"plane": plane, "source": source, "measured": [asdict(each) for each in measured]}
        return CapacityVersion.of(json_of(self._service.write("POST", "/v1/capacities", body=body)))

    # ------------------------------------------------------------------------------------------------ of an agent

    def trial(self, domain: str, enforcer: int) -> Trial | None:
        """What the VNF of an enforcement point is to be tried with now; None: nothing."""
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
    numbers = ("source_port", "destination_port", "icmp_type", "icmp_code", "tcp_flags", "later_fragment")
    return Packet(family, source, destination, protocol, **{name: body[name] for name in numbers})

"""Security domains, their hosts and endpoints: as the REST API shows them, and the calls of the client about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.client.paths import domain_path, once_header, quoted
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, Transport, generation_of, json_of, written
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Endpoint, ReturnTraffic, Rule


@dataclass(frozen=True, slots=True)
class Domain:
    """A security domain."""

    id: str
    return_traffic: str
    generation: int
    version: int

    @classmethod
    def of(cls, body: Json) -> Domain:
        return cls(body["id"], body["return_traffic"], body["generation"], body["version"])


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its switch's datapath id, and the interface towards the edge."""

    name: str
    datapath_id: int
    uplink: str

    @classmethod
    def of(cls, body: Json) -> Host:
        return cls(body["name"], int(body["datapath_id"], 16), body["uplink"])

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "datapath_id": f"{self.datapath_id:016x}", "uplink": self.uplink}


@dataclass(frozen=True, slots=True)
class Lagging:
    """A host that does not hold a generation yet; `state` is None when nobody ever reported it.

    Tenants are not told which host it is, nor the error.
    """

    host: str | None
    generation: int | None
    state: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Enforced:
    """Whether every host of a domain was read back at a generation or a later one, and who lags."""

    domain: str
    generation: int
    done: bool
    laggards: tuple[Lagging, ...]

    @classmethod
    def of(cls, body: Json) -> Enforced:
        laggards = tuple(Lagging(**each) for each in body["laggards"])
        return cls(body["domain"], body["generation"], body["state"] == "enforced", laggards)


def endpoint_of(body: Json) -> Endpoint:
    """An endpoint as the policy has it."""
    prefixes = tuple(Prefix.parse(text) for text in body["prefixes"])
    return Endpoint(body["name"], body["tenant"], body["port"], int(body["mac"].replace(":", ""), 16), prefixes)


class DomainCalls:
    """Security domains: what belongs to them, and how far a generation has got."""

    _service: Transport

    def domains(self) -> Iterator[Domain]:
        """Every security domain."""
        return map(Domain.of, self._service.pages("/v1/domains"))

    def domain(self, domain: str) -> Domain:
        """Raises NotFound."""
        return Domain.of(self._service.read(domain_path(domain)))

    def create_domain(
        self, domain: str, *, return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED, key: str | None = None
    ) -> Domain:
        """Raises Conflict."""
        body = {"id": domain, "return_traffic": return_traffic.value}
        return Domain.of(json_of(self._service.write("POST", "/v1/domains", body=body, headers=once_header(key))))

    def set_return_traffic(self, domain: str, setting: ReturnTraffic, *, etag: str = ANY_VERSION) -> Domain:
        """Raises NotFound, Stale."""
        body = {"return_traffic": setting.value}
        return Domain.of(json_of(self._service.write("PATCH", domain_path(domain), body=body, etag=etag)))

    def delete_domain(self, domain: str, *, etag: str = ANY_VERSION) -> None:
        """Raises Conflict while it has tenants or hosts."""
        self._service.write("DELETE", domain_path(domain), etag=etag)

    def hosts(self, domain: str) -> tuple[Host, ...]:
        """The hosts of a domain, by name."""
        return tuple(map(Host.of, self._service.read(f"{domain_path(domain)}/hosts")))

    def add_host(self, domain: str, host: Host, *, key: str | None = None) -> int:
        """Onboard a host; returns the generation it must reach. Raises Conflict."""
        path = f"{domain_path(domain)}/hosts"
        return generation_of(self._service.write("POST", path, body=host.to_json(), headers=once_header(key)))

    def remove_host(self, domain: str, host: str) -> None:
        """Raises NotFound."""
        self._service.write("DELETE", f"{domain_path(domain)}/hosts/{quoted(host)}", etag=ANY_VERSION)

    def endpoints(self, domain: str) -> tuple[Endpoint, ...]:
        """The endpoints of a domain, by name."""
        return tuple(map(endpoint_of, self._service.pages(f"{domain_path(domain)}/endpoints")))

    def put_endpoint(self, domain: str, endpoint: Endpoint, *, etag: str | None = None) -> Written:
        """Add an endpoint, or change the one at `etag`. Raises BadPolicy, Conflict, NotFound, Stale."""
        body = {
            "tenant": endpoint.tenant,
            "port": endpoint.port,
            "mac": endpoint.mac.to_bytes(6, "big").hex(":"),
            "prefixes": list(map(str, endpoint.prefixes)),
        }
        path = f"{domain_path(domain)}/endpoints/{quoted(endpoint.name)}"
        return written(self._service.write("PUT", path, body=body, etag=etag))

    def remove_endpoint(self, domain: str, endpoint: str, *, etag: str = ANY_VERSION) -> int:
        """Returns the generation without it. Raises NotFound, Stale."""
        path = f"{domain_path(domain)}/endpoints/{quoted(endpoint)}"
        return generation_of(self._service.write("DELETE", path, etag=etag))

    def operator_rules(self, domain: str) -> tuple[Rule, ...]:
        """The rules above all tenants, in order."""
        body = self._service.read(f"{domain_path(domain)}/operator-rules")
        return tuple(rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(body["rules"]))

    def set_operator_rules(self, domain: str, rules: Sequence[Rule], *, etag: str = ANY_VERSION) -> Written:
        """Replace the operator's rules. Raises BadPolicy, Stale."""
        body = {"rules": [rule_to_json(rule) for rule in rules]}
        return written(self._service.write("PUT", f"{domain_path(domain)}/operator-rules", body=body, etag=etag))

    def generation(self, domain: str, generation: int) -> Enforced:
        """How far a generation has got."""
        return Enforced.of(self._service.read(f"{domain_path(domain)}/generations/{generation}"))

    def wait_enforced(self, domain: str, generation: int, *, timeout_s: float = 30.0) -> Enforced:
        """Wait until every host was read back at `generation` or later; when time ran out it is not `done`."""
        response = self._service.ask(
            "GET",
            f"{domain_path(domain)}/generations/{generation}",
            query={"wait": "enforced", "timeout": timeout_s},
            held_s=timeout_s,
        )
        return Enforced.of(json_of(response))

"""Security domains, hosts and endpoints as the REST API shows them, with their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.client.calls import Calls, domain_path, once_header, quote_segment
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, document_of, generation_of, json_of, written
from orchestrator.policy.addresses import Prefix, read_mac
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import Endpoint, ReturnTraffic, Rule, TenantId
from orchestrator.wire.domains import Domain, EndpointSeen, Enforced, HostEndpoints


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
class OperatorRulesSeen:
    """The operator's rules of a domain and the ETag they were read at."""

    rules: tuple[Rule, ...]
    etag: str


def _operator_rules(body: Json) -> tuple[Rule, ...]:
    return tuple(rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(body["rules"]))


def endpoint_of(seen: EndpointSeen) -> Endpoint:
    """Return an endpoint as the policy has it."""
    mac, prefixes = read_mac(seen.mac), tuple(map(Prefix.parse, seen.prefixes))
    return Endpoint(seen.name, TenantId(seen.tenant), seen.port, mac, prefixes, seen.shared)


class DomainCalls(Calls):
    """Security domains: what belongs to them, and how far a generation has got."""

    def read_all(self) -> Iterator[Domain]:
        """Every security domain."""
        return self._service.documents(Domain, "/v1/domains")

    def read(self, domain: str) -> Domain:
        """Return a domain. Raises NotFound."""
        return self._service.read_document(Domain, domain_path(domain))

    def create(
        self,
        domain: str,
        *,
        return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED,
        path_mtu_rate: int | None = None,
        key: str | None = None,
    ) -> Domain:
        """Create a domain. Raises Conflict."""
        body = {"id": domain, **_returns_body(return_traffic, path_mtu_rate)}
        return document_of(Domain, self._service.write("POST", "/v1/domains", body=body, headers=once_header(key)))

    def set_return_traffic(
        self,
        domain: str,
        setting: ReturnTraffic | None = None,
        *,
        path_mtu_rate: int | None = None,
        etag: str = ANY_VERSION,
    ) -> Domain:
        """Change what is given, and leave the rest. Raises NotFound, Stale."""
        body = _returns_body(setting, path_mtu_rate)
        return document_of(Domain, self._service.write("PATCH", domain_path(domain), body=body, etag=etag))

    def delete(self, domain: str, *, etag: str = ANY_VERSION) -> None:
        """Delete a domain. Raises Conflict while it has tenants or hosts."""
        self._service.write("DELETE", domain_path(domain), etag=etag)

    def read_hosts(self, domain: str) -> tuple[Host, ...]:
        """The hosts of a domain, by name."""
        return tuple(map(Host.of, self._service.read(f"{domain_path(domain)}/hosts")))

    def add_host(self, domain: str, host: Host, *, key: str | None = None) -> int:
        """Onboard a host; returns the generation it must reach. Raises Conflict."""
        path = f"{domain_path(domain)}/hosts"
        return generation_of(self._service.write("POST", path, body=host.to_json(), headers=once_header(key)))

    def remove_host(self, domain: str, host: str) -> None:
        """Remove a host from a domain. Raises NotFound."""
        self._service.write("DELETE", f"{domain_path(domain)}/hosts/{quote_segment(host)}", etag=ANY_VERSION)

    def read_endpoints(self, domain: str) -> tuple[Endpoint, ...]:
        """The endpoints of a domain, by name."""
        return tuple(map(endpoint_of, self._service.documents(EndpointSeen, f"{domain_path(domain)}/endpoints")))

    def read_endpoints_in_force(self, domain: str, host: str) -> HostEndpoints:
        """Return the endpoints on a host whose rows were read back there. Raises NotFound."""
        path = f"{domain_path(domain)}/hosts/{quote_segment(host)}/endpoints"
        return self._service.read_document(HostEndpoints, path)

    def put_endpoint(self, domain: str, endpoint: Endpoint, *, etag: str | None = None) -> Written:
        """Add an endpoint, or change the one at `etag`. Raises BadPolicy, Conflict, NotFound, Stale."""
        body = {
            "tenant": endpoint.tenant,
            "port": endpoint.port,
            "mac": endpoint.mac.to_bytes(6, "big").hex(":"),
            "prefixes": list(map(str, endpoint.prefixes)),
            "shared": endpoint.shared,
        }
        path = f"{domain_path(domain)}/endpoints/{quote_segment(endpoint.name)}"
        return written(self._service.write("PUT", path, body=body, etag=etag))

    def remove_endpoint(self, domain: str, endpoint: str, *, etag: str = ANY_VERSION) -> int:
        """Returns the generation without it. Raises NotFound, Stale."""
        path = f"{domain_path(domain)}/endpoints/{quote_segment(endpoint)}"
        return generation_of(self._service.write("DELETE", path, etag=etag))

    def read_operator_rules(self, domain: str) -> tuple[Rule, ...]:
        """The rules above all tenants, in order."""
        return self.read_operator_rules_with_etag(domain).rules

    def read_operator_rules_with_etag(self, domain: str) -> OperatorRulesSeen:
        """Return a domain's operator rules, with the ETag that they were read at."""
        response = self._service.ask("GET", f"{domain_path(domain)}/operator-rules")
        return OperatorRulesSeen(_operator_rules(json_of(response)), response.headers.get("ETag", ANY_VERSION))

    def set_operator_rules(self, domain: str, rules: Sequence[Rule], *, etag: str = ANY_VERSION) -> Written:
        """Replace the operator's rules. Raises BadPolicy, Stale."""
        body = {"rules": [rule_to_json(rule) for rule in rules]}
        return written(self._service.write("PUT", f"{domain_path(domain)}/operator-rules", body=body, etag=etag))

    def read_generation(self, domain: str, generation: int) -> Enforced:
        """How far a generation has got."""
        return self._service.read_document(Enforced, f"{domain_path(domain)}/generations/{generation}")

    def wait_until_enforced(self, domain: str, generation: int, *, timeout_s: float = 30.0) -> Enforced:
        """Wait until every host was read back at `generation` or later.

        When time ran out, the result is not `done`.
        """
        response = self._service.ask(
            "GET",
            f"{domain_path(domain)}/generations/{generation}",
            query={"wait": "enforced", "timeout": timeout_s},
            held_s=timeout_s,
        )
        return document_of(Enforced, response)


def _returns_body(setting: ReturnTraffic | None, path_mtu_rate: int | None) -> dict[str, str | int]:
    """Return what is given, as a body says it."""
    body: dict[str, str | int] = {} if setting is None else {"return_traffic": setting.value}
    return body if path_mtu_rate is None else {**body, "path_mtu_rate": path_mtu_rate}

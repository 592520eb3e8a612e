"""Calls of the client about points of presence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.client.calls import Calls, domain_path, once_header, quote_segment
from orchestrator.client.domains import Host
from orchestrator.client.records import Json
from orchestrator.client.transport import ANY_VERSION, generation_of, json_of


class PopCalls(Calls):
    """PoPs of domains: what they hold is told as the service says it (`docs/edge-switch.md`)."""

    def read_all(self) -> Iterator[Json]:
        """Every PoP by name, with its version and its domain's generation."""
        return iter(self._service.pages("/v1/pops"))

    def read(self, name: str) -> Json:
        """A PoP: settings, switches, servers, places, lines and heavy hitters. Raises NotFound."""
        found: Json = self._service.read(_path(name))
        return found

    def add(
        self, name: str, domain: str, outside: tuple[str, ...], *, key: str | None = None, **settings: object
    ) -> int:
        """Give a domain its PoP; the generation of that.

        `settings` are named as in REST. Raises Conflict, BadInput.
        """
        body = {"name": name, "domain": domain, "outside": list(outside), **settings}
        return generation_of(self._service.write("POST", "/v1/pops", body=body, headers=once_header(key)))

    def configure(self, name: str, settings: Mapping[str, object]) -> int:
        """Lay a PoP out differently in what is named; the generation of that.

        Raises NotFound, BadInput, TooLarge.
        """
        body = {**self.read(name)["settings"], **settings}
        return generation_of(self._service.write("PUT", _path(name), body=body, etag=ANY_VERSION))

    def remove(self, name: str) -> int:
        """Remove a PoP. Raises NotFound, and Conflict while it has edge switches."""
        return generation_of(self._service.write("DELETE", _path(name), etag=ANY_VERSION))

    def read_edges(self, domain: str) -> tuple[Host, ...]:
        """The edge switches of a domain's PoP, by name."""
        return tuple(map(Host.of, self._service.pages(f"{domain_path(domain)}/edges")))

    def add_edge(self, name: str, edge: Host, *, key: str | None = None) -> int:
        """Onboard an edge switch; the generation that it must reach. Raises Conflict."""
        path = f"{_path(name)}/edges"
        return generation_of(self._service.write("POST", path, body=edge.to_json(), headers=once_header(key)))

    def remove_edge(self, name: str, edge: str) -> int:
        """Remove an edge switch. Raises NotFound."""
        return generation_of(self._service.write("DELETE", f"{_path(name)}/edges/{quote_segment(edge)}"))

    def add_server(self, name: str, server: str, port: str, mac: str, *, key: str | None = None) -> int:
        """Bring in a firewall server; the generation in which it has its tenants. Raises Conflict."""
        body = {"name": server, "port": port, "mac": mac}
        return generation_of(self._service.write("POST", f"{_path(name)}/servers", body=body, headers=once_header(key)))

    def set_server(self, name: str, server: str, state: str) -> int:
        """Say whether a server is serving, draining or lost; the generation of that. Raises NotFound."""
        path = f"{_path(name)}/servers/{quote_segment(server)}"
        return generation_of(self._service.write("PUT", path, body={"state": state}))

    def remove_server(self, name: str, server: str) -> int:
        """Remove a firewall server. Raises NotFound."""
        return generation_of(self._service.write("DELETE", f"{_path(name)}/servers/{quote_segment(server)}"))

    def place_tenants(self, name: str, places: Mapping[str, str]) -> int:
        """Have tenants served by servers, by their names; the generation of that. Raises NotFound."""
        return generation_of(self._service.write("PATCH", f"{_path(name)}/places", body={"places": dict(places)}))

    def rebuild_lines(self, name: str) -> int:
        """Have a PoP's lines built anew; the generation of that. Raises NotFound."""
        return generation_of(self._service.write("POST", f"{_path(name)}/rebuild"))

    def choose_heavy_hitters(self, name: str) -> Json:
        """Have a round of choosing now; what it came to. Raises NotFound."""
        found: Json = json_of(self._service.write("POST", f"{_path(name)}/heavy"))
        return found

    def read_traffic(self, name: str) -> Json:
        """Return how packets from outside were spread over a PoP. Raises NotFound."""
        found: Json = self._service.read(f"{_path(name)}/traffic")
        return found


def _path(name: str) -> str:
    return f"/v1/pops/{quote_segment(name)}"


def ways(seen: Json) -> list[tuple[str, str, str]]:
    """Where packets went, one row a way: words, packets, bytes."""
    rows = [(f"to the WAN: heavy hitter {each['tenant']}/{each['rule']}", each) for each in seen["heavy"]]
    if seen["gone"]["packets"]:
        rows.append(("to the WAN: heavy hitters that are no rule any more", seen["gone"]))
    for name, each in seen["servers"].items():
        whom = ", ".join(each["tenants"]) or "nobody"
        rows.append((f"to {name} (for {whom}): by a line", each["lines"]))
        rows.append((f"to {name} (for {whom}): by an exception", each["exceptions"]))
    rows.append(("nowhere: no tenant's address", seen["nobody"]))
    rows.append(("nowhere: from outside with a tenant's address", seen["spoofed"]))
    return [(words, f"{counted['packets']:,}", f"{counted['bytes']:,}") for words, counted in rows]


def share_of(tenant: Json) -> str:
    """Which share of a tenant's packets went past the firewall servers, in words."""
    share = tenant["bypass_share"]
    return "" if share is None else f"{100 * share:.1f} %"

"""Calls of the client about firewall VNFs; `client.py` has all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from orchestrator.client.paths import domain_path, enforcer_path, once_header, quote_segment
from orchestrator.client.transport import ANY_VERSION, Transport, generation_of
from orchestrator.wire.firewalls import Firewall, Load


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

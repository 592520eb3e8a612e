"""Calls of the client about machines that become hosts; `client.py` has all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.client.paths import domain_path, once_header, quote_segment
from orchestrator.client.transport import Transport, document_of
from orchestrator.wire.onboarding import MachineOnboarding


class OnboardingCalls:
    """Machines that become hosts."""

    _service: Transport

    def onboard(self, domain: str, asked: Mapping[str, object], *, key: str | None = None) -> MachineOnboarding:
        """Start to make a machine a host.

        `asked` is as the REST interface says it (`NewHost`).

        Raises BadInput, Conflict, NotFound.
        """
        path = f"{domain_path(domain)}/hosts"
        return document_of(MachineOnboarding, self._service.write("POST", path, body=asked, headers=once_header(key)))

    def onboarding(self, domain: str, host: str) -> MachineOnboarding:
        """How far a machine is. Raises NotFound."""
        return self._service.read_document(MachineOnboarding, _path(domain, host))

    def onboardings(self, domain: str) -> Iterator[MachineOnboarding]:
        """All of a domain, by the name of the host."""
        return self._service.documents(MachineOnboarding, f"{domain_path(domain)}/onboardings")

    def give_back(self, domain: str, host: str) -> MachineOnboarding:
        """Have a machine's switch closed, and the host forgotten. Raises NotFound, Conflict."""
        return document_of(MachineOnboarding, self._service.write("DELETE", _path(domain, host)))


def _path(domain: str, host: str) -> str:
    return f"{domain_path(domain)}/onboardings/{quote_segment(host)}"

"""Calls of the client about machines that become hosts; `client.py` has all others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.client.paths import domain_path, once_header, quoted
from orchestrator.client.records import Json
from orchestrator.client.transport import Transport, json_of


@dataclass(frozen=True, slots=True)
class MachineOnboarding:
    """A machine on its way: `state` is adding, done, failed or removing; `error` says what to change."""

    name: str
    machine: str
    bridge: str
    datapath_id: str
    uplink: str
    controllers: tuple[str, ...]
    state: str
    step: str
    error: str | None
    changed: dt.datetime

    @classmethod
    def of(cls, body: Json) -> MachineOnboarding:
        changed = dt.datetime.fromisoformat(body["changed"])
        return cls(**{**body, "controllers": tuple(body["controllers"]), "changed": changed})

    @property
    def under_way(self) -> bool:
        return self.state in ("adding", "removing")


class OnboardingCalls:
    """Machines that become hosts."""

    _service: Transport

    def onboard(self, domain: str, asked: Mapping[str, object], *, key: str | None = None) -> MachineOnboarding:
        """Have a machine made a host, beside other things; `asked` as the REST interface says it (`NewHost`).

        Raises BadInput, Conflict, NotFound.
        """
        path = f"{domain_path(domain)}/hosts"
        return MachineOnboarding.of(json_of(self._service.write("POST", path, body=asked, headers=once_header(key))))

    def onboarding(self, domain: str, host: str) -> MachineOnboarding:
        """How far a machine is. Raises NotFound."""
        return MachineOnboarding.of(self._service.read(_path(domain, host)))

    def onboardings(self, domain: str) -> Iterator[MachineOnboarding]:
        """All of a domain, by the name of the host."""
        return map(MachineOnboarding.of, self._service.pages(f"{domain_path(domain)}/onboardings"))

    def give_back(self, domain: str, host: str) -> MachineOnboarding:
        """Have a machine's switch closed, and the host forgotten. Raises NotFound, Conflict."""
        return MachineOnboarding.of(json_of(self._service.write("DELETE", _path(domain, host))))


def _path(domain: str, host: str) -> str:
    return f"{domain_path(domain)}/onboardings/{quoted(host)}"

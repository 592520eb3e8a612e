"""Calls of the client about packets that rules with `log` decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.client.calls import Calls, domain_path, tenant_path
from orchestrator.client.transport import ANY_VERSION, json_of
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.protocols import WITH_PORTS

LoggedPacket = Mapping[str, Any]
"""A record: `id`, `time`, `tenant`, `rule`, `action`, `host`, and the packet's fields."""


@dataclass(frozen=True, slots=True)
class LogLimitSeen:
    """The limit of a domain, and the ETag that it was read at."""

    limit: LogLimit
    etag: str


def end_of(record: LoggedPacket, side: str) -> str:
    """Return a record's `source` or `destination` with its port, if any.

    For example 192.0.2.1:80 or [2001:db8::1]:80.
    """
    address = str(record[side])
    if record["protocol"] not in WITH_PORTS or record["later_fragment"]:
        return address
    return f"[{address}]:{record[f'{side}_port']}" if ":" in address else f"{address}:{record[f'{side}_port']}"


class PacketLogCalls(Calls):
    """Calls about packets of rules with `log`."""

    def read(
        self,
        tenant: str | None = None,
        *,
        domain: str | None = None,
        rule: str | None = None,
        action: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Sequence[LoggedPacket]:
        """Return records of a tenant or a domain, oldest first.

        The newest ones, or those after an id.
        """
        path = f"{tenant_path(tenant)}/acl/log" if tenant is not None else f"{domain_path(domain or '')}/log"
        asked = {"rule": rule, "action": action, "after": after, "limit": limit}
        query = {name: str(value) for name, value in asked.items() if value is not None}
        found: Sequence[LoggedPacket] = json_of(self._service.ask("GET", path, query=query))["items"]
        return found

    def read_limit(self, domain: str) -> LogLimitSeen:
        """How many packets of each tenant a switch of the domain reports."""
        response = self._service.ask("GET", f"{domain_path(domain)}/log/limit")
        return LogLimitSeen(_limit(json_of(response)), response.headers.get("ETag", ANY_VERSION))

    def set_limit(self, domain: str, limit: LogLimit, *, etag: str = ANY_VERSION) -> LogLimit:
        """Set that. Raises NotFound, Stale."""
        body, headers = {"rate": limit.rate, "burst": limit.burst}, {"If-Match": etag}
        return _limit(json_of(self._service.ask("PUT", f"{domain_path(domain)}/log/limit", body=body, headers=headers)))


def _limit(body: Mapping[str, int]) -> LogLimit:
    """Read a limit of reports from JSON."""
    return LogLimit(body["rate"], body["burst"])

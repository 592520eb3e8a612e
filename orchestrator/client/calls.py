"""The base of the client's areas, and where things are in the REST API."""

from __future__ import annotations

from urllib.parse import quote

from orchestrator.client.transport import Transport


class Calls:
    """The calls of one area."""

    def __init__(self, service: Transport) -> None:
        self._service = service

    def close(self) -> None:
        """Give the connections back, for all areas of the client."""
        self._service.close()


def quote_segment(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def tenant_path(tenant: str) -> str:
    """Return the path of a tenant in the REST API."""
    return f"/v1/tenants/{quote_segment(tenant)}"


def rule_path(tenant: str, rule: str) -> str:
    """A rule of a tenant's list."""
    return f"{tenant_path(tenant)}/acl/rules/{quote_segment(rule)}"


def group_path(tenant: str, group: str) -> str:
    """An address group of a tenant's list."""
    return f"{tenant_path(tenant)}/acl/groups/{quote_segment(group)}"


def domain_path(domain: str) -> str:
    """Return the path of a security domain in the REST API."""
    return f"/v1/domains/{quote_segment(domain)}"


def enforcer_path(domain: str, enforcer: int) -> str:
    """Return the path of an enforcement point in the REST API."""
    return f"{domain_path(domain)}/enforcers/{enforcer}"


def once_header(key: str | None) -> dict[str, str]:
    """The header that makes a POST safe to repeat; none without a key."""
    return {"Idempotency-Key": key} if key is not None else {}

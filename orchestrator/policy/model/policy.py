"""A security domain: tenants with their lists, endpoints, and the operator's rules."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.model.acl import Acl
from orchestrator.policy.model.givennames import TenantId
from orchestrator.policy.model.rule import Rule

_EMPTY = Acl()
"""The list of a tenant that has said nothing yet."""


class ReturnTraffic(enum.Enum):
    """How replies get back in: by header fields, by connections, or by rules."""

    ESTABLISHED = "established"
    """By a last rule of each list, for TCP segments with ACK or RST. Nothing is remembered."""
    PATH_MTU = "path-mtu"
    """As `ESTABLISHED`, and so many ICMP errors a second that say which size of packet a path takes."""
    EXPLICIT = "explicit"
    """Only by rules of the tenant."""
    TRACKED = "tracked"
    """As packets of a connection that the lists permit; nothing else comes in (`policy/connections.py`)."""


PATH_MTU_RATE = 100
"""A router sends one such message a second to each sender (Linux: `icmp_ratelimit`), so this serves many at once."""
HIGHEST_PATH_MTU_RATE = 10_000


@dataclass(frozen=True, slots=True)
class Tenant:
    """A project of the cloud: what it owns and what it permits.

    `number` (1..2^32-1) stands for the tenant in registers and cookies and is never reused; `rule_numbers` gives each
    rule id its number (1..2^40-1), likewise never reused.
    """

    id: TenantId
    number: int
    prefixes: tuple[Prefix, ...] = ()
    acl: Acl = _EMPTY
    rule_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def owns(self, family: Family, address: int) -> bool:
        return any(prefix.family is family and prefix.holds(address) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A tenant's network port: where packets leave and arrive, and its only addresses."""

    name: str
    tenant: TenantId
    port: str
    mac: int
    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides a packet's fate in one security domain, as one value."""

    tenants: tuple[Tenant, ...] = ()
    operator: tuple[Rule, ...] = ()
    operator_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED
    endpoints: tuple[Endpoint, ...] = ()
    log_limit: LogLimit = USUAL
    path_mtu_rate: int = PATH_MTU_RATE
    """Under `PATH_MTU`: a switch or firewall VNF lets through at most so many of these messages a second and tenant."""
    holds_replies: bool = False
    """Where connections are tracked: no replies pass, nor ICMP errors or later fragments, until all hosts have followed
    from or to another setting (`policy/intersection.py`)."""


T = TypeVar("T")

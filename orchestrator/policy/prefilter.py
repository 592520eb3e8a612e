"""The meaning of a firewall server in plain Python: the oracle of the middle tier.

A server holds the ingress lists of the tenants that are placed on it, and stands before hosts that enforce everything.
So it never denies what they permit; it sees one direction only, and lets every TCP segment with ACK or RST through to
them, and what path MTU discovery needs: hosts ask whether the domain admits it, or whether it is of a connection.

  1. a packet for nobody whom the server serves is misdirected:
       it arrived from another server         dropped: it was decided here, and is not sent on again
       `rehome`, and another server has them  sent to that server
       `wan`                                  let through, as the paper has it
       otherwise                              dropped
  2. else an operator rule decides, where one speaks,
  3. else it passes if it is a TCP segment with ACK or RST, or says which size of packet a path takes,
  4. else the tenant's ingress list decides.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.model import Action, Direction, Packet, Policy, ReturnTraffic, TenantId
from orchestrator.policy.oracle import PATH_MTU_RULES, RETURN_RULES, ask, matches, owner

MOST_SERVERS = 0xFFFF
"""Numbers of servers are 1 to this: they stand in marks of packets."""


class Misdirect(enum.Enum):
    """The treatment of a packet whose tenant the server does not hold."""

    WAN = "wan"
    REHOME = "rehome"
    DROP = "drop"


class Fate(enum.Enum):
    """A server's action on a packet."""

    PERMIT = "permit"
    DROP = "drop"
    REHOME = "rehome"


@dataclass(frozen=True, slots=True)
class Share:
    """A server's part of a policy: its tenants, and the servers (by number) of others."""

    served: frozenset[TenantId]
    elsewhere: Mapping[TenantId, int] = field(default_factory=lambda: MappingProxyType({}))
    misdirect: Misdirect = Misdirect.REHOME

    def __post_init__(self) -> None:
        for tenant, number in self.elsewhere.items():
            if not 1 <= number <= MOST_SERVERS:
                raise BadInput(f"servers have numbers from 1 to {MOST_SERVERS}, not {number}", place="elsewhere")
            if tenant in self.served:
                raise BadInput(f"'{tenant}' is served here", place="elsewhere")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict for a packet; `server` is the number of the next server."""

    fate: Fate
    server: int | None = None


PASSED, DROPPED = Verdict(Fate.PERMIT), Verdict(Fate.DROP)


def verdict(policy: Policy, share: Share, packet: Packet, *, rehomed: bool = False) -> Verdict:
    """Return a server's verdict for a packet; `rehomed`: it came from another server."""
    tenant = owner(policy, packet.family, packet.destination)
    if tenant is None or tenant.id not in share.served:
        return _decide_misdirected(share, tenant.id if tenant else None, rehomed=rehomed)
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None:
        return PASSED if operator.action is Action.PERMIT else DROPPED
    if any(matches(rule, packet, {}) for rule in (*RETURN_RULES, *PATH_MTU_RULES)):
        return PASSED
    step = ask(tenant.acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT)
    return PASSED if step.action is Action.PERMIT else DROPPED


def _decide_misdirected(share: Share, tenant: TenantId | None, *, rehomed: bool) -> Verdict:
    if rehomed:
        return DROPPED
    if share.misdirect is Misdirect.WAN:
        return PASSED
    number = share.elsewhere.get(tenant) if tenant is not None else None
    if share.misdirect is Misdirect.REHOME and number is not None:
        return Verdict(Fate.REHOME, number)
    return DROPPED

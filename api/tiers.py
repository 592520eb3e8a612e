"""The tier at which a traced packet is decided, and the decider there.

It is a firewall, a lifted rule, or the list itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import Decision, owner
from orchestrator.policy.prefilter import DROPPED, Share, verdict
from orchestrator.store.pops.records import Pop
from orchestrator.store.unit import Unit

TierWord = Literal["server", "host"]


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a packet's fate is settled first.

    `server` names the firewall server, or the VNF where there is one alone, that drops it before a host sees it.
    `lifted`: the deciding rule stands ahead of its list. `heavy`: it is a heavy hitter, so its packets go past the
    firewall servers.
    """

    tier: TierWord = "host"
    server: str | None = None
    lifted: bool = False
    heavy: bool = False


def settle_decision(unit: Unit, domain: str, policy: Policy, packet: Packet, decision: Decision) -> Settled:
    """Where a decision takes effect, with what is placed as it is now.

    `policy` is what the decision asked. The way a packet comes by depends on whether its source is anybody's here,
    which a tenant does not learn: for its own list alone every other source is outside.
    """
    if not decision.steps:
        return Settled()
    last, pop = decision.steps[-1], unit.pops.of_domain(domain)
    tier: TierWord = "host"
    server = None
    if not decision.permitted and _is_from_outside(policy, packet):
        tier, server = _dropped_ahead(unit, domain, pop, policy, packet)
    if last.tenant is None or last.rule is None:
        return Settled(tier, server)
    chosen = {(each.rule.tenant, each.rule.rule) for each in pop.heavy} if pop else set()
    return Settled(
        tier,
        server,
        lifted=last.rule in unit.placements.lifted_of(last.tenant),
        heavy=(last.tenant, last.rule) in chosen,
    )


def _is_from_outside(policy: Policy, packet: Packet) -> bool:
    """Return whether a packet to a tenant comes from outside the domain.

    Its sender's address is nobody's here, so it comes through all that stands ahead of the hosts.
    """
    ends = (owner(policy, packet.family, each) for each in (packet.source, packet.destination))
    return [each is not None for each in ends] == [False, True]


def _dropped_ahead(
    unit: Unit, domain: str, pop: Pop | None, policy: Policy, packet: Packet
) -> tuple[TierWord, str | None]:
    """Return the tier that drops a packet on its way in, and the dropper's name.

    It is its tenant's server, a VNF (they hold whole lists), or a host. None: the name is not known, or it is the host.
    """
    if pop is not None:
        server = _dropped_by(unit, pop, policy, packet)
        return "server" if server else "host", server
    names = sorted(unit.firewalls.names(domain))
    return "server" if names else "host", names[0] if len(names) == 1 else None


def _dropped_by(unit: Unit, pop: Pop, policy: Policy, packet: Packet) -> str | None:
    """The firewall server that drops a packet from outside, if one does."""
    whom = owner(policy, packet.family, packet.destination)
    if whom is None:
        return None
    number = pop.places.get(unit.tenants.get(whom.id).number)
    name = next((each.name for each in pop.servers if each.number == number), None)
    dropped = name is not None and verdict(policy, Share(frozenset({whom.id})), packet) == DROPPED
    return name if dropped else None

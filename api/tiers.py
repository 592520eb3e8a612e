"""At which tier a traced packet meets its fate, and by what: a firewall server, a lifted rule, the list itself."""

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

    `server` names the firewall server that drops it before a host sees it. `lifted`: the deciding rule stands ahead of
    its list. `heavy`: it is a heavy hitter, so its packets go past the firewall servers.
    """

    tier: TierWord = "host"
    server: str | None = None
    lifted: bool = False
    heavy: bool = False


def settled(unit: Unit, domain: str, policy: Policy, packet: Packet, decision: Decision) -> Settled:
    """Where a decision takes effect, with what is placed as it is now."""
    if not decision.steps:
        return Settled()
    last, pop = decision.steps[-1], unit.pops.of_domain(domain)
    server = None if pop is None or decision.permitted else _dropped_by(unit, pop, policy, packet)
    if last.tenant is None or last.rule is None:
        return Settled("server" if server else "host", server)
    chosen = {(each.rule.tenant, each.rule.rule) for each in pop.heavy} if pop else set()
    return Settled(
        "server" if server else "host",
        server,
        lifted=last.rule in unit.placements.lifted_of(last.tenant),
        heavy=(last.tenant, last.rule) in chosen,
    )


def _dropped_by(unit: Unit, pop: Pop, policy: Policy, packet: Packet) -> str | None:
    """The firewall server that drops a packet from outside, if one does."""
    whom = owner(policy, packet.family, packet.destination)
    if whom is None or owner(policy, packet.family, packet.source) is not None:
        return None
    number = pop.places.get(unit.tenants.get(whom.id).number)
    name = next((each.name for each in pop.servers if each.number == number), None)
    dropped = name is not None and verdict(policy, Share(frozenset({whom.id})), packet) == DROPPED
    return name if dropped else None

"""The tier of firewall VNFs: each domain's policy compiled for its firewalls' planes.

It is published beside the switches' program, under the same generation.

A firewall holds the whole policy and changes at one moment, so a mix of old and new firewalls lets nothing through that
neither policy permits: where a packet passes several, each must permit it by itself. It needs no intersection first.

Where a domain tracks connections, its firewalls do if the domain's traffic is spread so that both directions of a
connection meet the same one, and they do not share connections (`tracks_connections`). All others stay at replies that
are let in by what they look like.

Firewalls that share connections are given the lists themselves, too (`compile/filters/clusterlists.py`): by these, what
shares the connections closes those that a changed list forbids.
"""

from __future__ import annotations

from orchestrator.compile.filters.clusterlists import check_shared
from orchestrator.compile.filters.filterlists import check_carried
from orchestrator.compile.filters.filterprogram import FilterProgram, without_connections
from orchestrator.control.publisher import PublishedTier
from orchestrator.errors import NotFound
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.program.program import Program
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane


class FirewallTier(PublishedTier[FilterProgram]):
    """Compiles and publishes. Safe between threads."""

    def compile(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> Program | None:
        """The program of a domain's firewalls; None where it has none.

        It is made from the last one, so lists that did not change cost nothing.

        Raises TooLarge, BadPolicy and NotExpressible with the place of the rule that the firewalls cannot carry.
        """
        planes = _planes(unit, domain)
        if not planes:
            return None
        with self._lock:
            last = self._known.get(domain)
        policy = snapshot.policy
        tracks = tracks_connections(unit, domain, policy.return_traffic)
        lists = policy if shares_connections(unit, domain) else None
        if not tracks and policy.return_traffic is ReturnTraffic.TRACKED and _is_to_track(unit, domain):
            _check_carried(policy, planes)
        asked = policy if tracks else without_connections(policy)
        generation, lifted = snapshot.generation, snapshot.lifted
        if last is None:
            made = FilterProgram.of(asked, planes, domain=domain, generation=generation, lifted=lifted, lists=lists)
        else:
            made = last.after(asked, planes, generation=generation, lifted=lifted, lists=lists)
        with self._lock:
            self._known[domain] = made
        return made.program


def tracks_connections(unit: Unit, domain: str, returns: ReturnTraffic) -> bool:
    """Return whether a domain's firewalls see both directions of connections that they are to track."""
    known = unit.spreads.find(domain) if returns is ReturnTraffic.TRACKED else None
    return known is not None and known.spread.shows_connections


def shares_connections(unit: Unit, domain: str) -> bool:
    """Return whether a domain's firewalls share their connections."""
    known = unit.spreads.find(domain)
    return known is not None and known.spread.synchronised


def check_sharing(unit: Unit, domain: str) -> None:
    """Refuse rules that firewalls which share connections cannot ask about these.

    Raises BadPolicy with the rule's place.
    """
    check_shared(unit.domains.policy(domain).policy)


def check_tracking(unit: Unit, domain: str) -> None:
    """Refuse rules that a domain's firewalls cannot carry once they see both directions of connections.

    Raises BadPolicy with the rule's place.
    """
    policy = unit.domains.policy(domain).policy
    if policy.return_traffic is ReturnTraffic.TRACKED:
        _check_carried(policy, _planes(unit, domain))


def _check_carried(policy: Policy, planes: frozenset[Plane]) -> None:
    tracking = [plane for plane in planes if plane.tracks]
    if tracking:
        check_carried(policy, carries_stateless=all(plane.carries_stateless for plane in tracking))


def _is_to_track(unit: Unit, domain: str) -> bool:
    """Return whether a fleet's settings have its firewalls see both directions."""
    try:
        settings = unit.fleets.get(domain).settings
    except NotFound:
        return False
    return settings.stateful and settings.spread


def _planes(unit: Unit, domain: str) -> frozenset[Plane]:
    """Return the planes of a domain's firewalls with whole policies.

    Servers of a PoP have a share each.
    """
    pop = unit.pops.of_domain(domain)
    servers = set() if pop is None else {each.name for each in pop.servers}
    if not servers:  # then the names of perhaps a thousand firewalls need not be read at each change
        return unit.firewalls.planes(domain)
    return frozenset(plane for name, plane in unit.firewalls.plane_of(domain).items() if name not in servers)

"""Every kind of event, as data: its subject and its details.

Documents are generated from this.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class About(enum.Enum):
    """Whom an event is about, and so what its subject names.

    Tenants see events about themselves, nothing else.
    """

    TENANT = "tenant"
    DOMAIN = "domain"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event, with what happened."""

    name: str
    about: About
    says: str


_DECLARED = (
    EventKind("acl.replaced", About.TENANT, "the access list was replaced as a whole"),
    EventKind("acl.restored", About.TENANT, "the list is again what it was at an older version"),
    EventKind("acl.enforced", About.TENANT, "every host was read back with this version of the list"),
    EventKind("acl.confirmed", About.TENANT, "a change of the list was confirmed, and stays"),
    EventKind("acl.reverted", About.TENANT, "nobody confirmed a change of the list, or somebody took it back"),
    EventKind("acl.expired", About.TENANT, "rules were taken out because their time had come"),
    EventKind("rule.inserted", About.TENANT, "a rule was put in"),
    EventKind("rule.changed", About.TENANT, "a rule was changed where it stands"),
    EventKind("rule.moved", About.TENANT, "a rule was moved to another place"),
    EventKind("rule.deleted", About.TENANT, "a rule was taken out"),
    EventKind("rule.expiring", About.TENANT, "a rule's time will soon be over; it is then taken out"),
    EventKind("group.written", About.TENANT, "an address group was made or replaced"),
    EventKind("group.changed", About.TENANT, "members of an address group came or went"),
    EventKind("group.deleted", About.TENANT, "an address group was taken out"),
    EventKind("expectations.kept", About.TENANT, "what is expected of the list was written"),
    EventKind("expectations.deleted", About.TENANT, "nothing is expected of the list any more"),
    EventKind("expectations.broken", About.TENANT, "the list was written although it breaks an expectation"),
    EventKind("draft.shared", About.TENANT, "a draft of the list was shared"),
    EventKind("draft.deleted", About.TENANT, "a draft is shared no more"),
    EventKind("proposal.made", About.TENANT, "a change of the list waits for the approval of another person"),
    EventKind("proposal.approved", About.TENANT, "another person approved a change of the list"),
    EventKind("proposal.rejected", About.TENANT, "a proposed change of the list was rejected"),
    EventKind("proposal.withdrawn", About.TENANT, "a proposed change of the list was withdrawn by its author"),
    EventKind("waiver.added", About.TENANT, "somebody took responsibility for a finding, until a day"),
    EventKind("waiver.removed", About.TENANT, "a finding that was waived counts again"),
    EventKind("tenant.created", About.TENANT, "the tenant was registered"),
    EventKind("tenant.renamed", About.TENANT, "the tenant has another name"),
    EventKind("tenant.prefixes", About.TENANT, "what the tenant owns has changed"),
    EventKind("tenant.quota", About.TENANT, "what the tenant's list may cost has changed"),
    EventKind("tenant.deleted", About.TENANT, "the tenant is gone, with its list and its tokens"),
    EventKind("generation.published", About.DOMAIN, "enforcement points are given a new program"),
    EventKind("generation.enforced", About.DOMAIN, "every host was read back at this generation or a later one"),
    EventKind("generation.raised", About.DOMAIN, "hosts hold a later generation than the database, which was put back"),
    EventKind("domain.created", About.DOMAIN, "the domain was made"),
    EventKind("domain.changed", About.DOMAIN, "the domain's settings have changed"),
    EventKind("domain.deleted", About.DOMAIN, "the domain is gone"),
    EventKind("host.added", About.DOMAIN, "a host was onboarded"),
    EventKind("host.removed", About.DOMAIN, "a host was taken out"),
    EventKind(
        "firewall.trouble", About.DOMAIN, "a firewall says that something is wrong, or something else than before"
    ),
    EventKind(
        "firewall.unmade",
        About.DOMAIN,
        "the program of a firewall server cannot be made: it holds what it held, and it is tried again",
    ),
    EventKind("firewall.made", About.DOMAIN, "the program of a firewall server can be made again"),
    EventKind("host.refused", About.DOMAIN, "a host's switch refused the program, and holds what it held"),
    EventKind("host.drifted", About.DOMAIN, "a host's switch does not hold what it was given"),
    EventKind("host.disconnected", About.DOMAIN, "a host's switch is not connected, and holds what it held"),
    EventKind(
        "host.full", About.DOMAIN, "a host or firewall has no room for new connections, and drops what opens one"
    ),
    EventKind(
        "host.impersonated",
        About.DOMAIN,
        "a connection as a host's switch is not believed: that switch is connected, or the certificate is of others",
    ),
    EventKind("host.recovered", About.DOMAIN, "a host's switch takes programs again"),
    EventKind("onboarding.asked", About.DOMAIN, "a machine is to become a host"),
    EventKind(
        "onboarding.step", About.DOMAIN, "something was done to a machine that is to become a host, or to be given back"
    ),
    EventKind("onboarding.done", About.DOMAIN, "a machine became a host, and holds the domain's policy"),
    EventKind(
        "onboarding.failed", About.DOMAIN, "a machine could not be made a host, or given back: it says what to change"
    ),
    EventKind("onboarding.back", About.DOMAIN, "a machine is to be given back"),
    EventKind("firewall.added", About.DOMAIN, "a firewall VNF was onboarded"),
    EventKind("firewall.removed", About.DOMAIN, "a firewall VNF was taken out"),
    EventKind("fleet.changed", About.DOMAIN, "how the domain's fleet of firewall VNFs is to be has changed"),
    EventKind("fleet.removed", About.DOMAIN, "the domain has no fleet any more"),
    EventKind("fleet.resized", About.DOMAIN, "the domain's fleet is to have more or fewer VNFs"),
    EventKind("fleet.held", About.DOMAIN, "the fleet is left as it is: too much was created, or failed, lately"),
    EventKind("fleet.refused", About.DOMAIN, "the cloud does not give the fleet what was asked for"),
    EventKind("vnf.adopted", About.DOMAIN, "the cloud has made a firewall VNF by itself, and it was taken in"),
    EventKind("vnf.serving", About.DOMAIN, "a firewall VNF carries its share of the traffic"),
    EventKind("vnf.sick", About.DOMAIN, "a firewall VNF is not well, and gets no traffic"),
    EventKind("vnf.well", About.DOMAIN, "a firewall VNF is well again"),
    EventKind("vnf.draining", About.DOMAIN, "a firewall VNF gets no new traffic, and will leave"),
    EventKind("vnf.failed", About.DOMAIN, "a firewall VNF was given up, and is removed"),
    EventKind("vnf.gone", About.DOMAIN, "the cloud has a firewall VNF no more"),
    EventKind("vnf.orphan", About.DOMAIN, "the cloud had a firewall VNF that nobody owns; it is removed"),
    EventKind(
        "firewall.given-up",
        About.DOMAIN,
        "the spreading switch hears nothing of a firewall, and sends its traffic to others that share its connections",
    ),
    EventKind("firewall.heard", About.DOMAIN, "the spreading switch hears a firewall again: it gets its traffic back"),
    EventKind("spread.changed", About.DOMAIN, "traffic is spread over the domain's firewalls otherwise"),
    EventKind("pop.added", About.DOMAIN, "the domain was given a PoP"),
    EventKind("pop.changed", About.DOMAIN, "how the domain's PoP is laid out has changed"),
    EventKind("pop.removed", About.DOMAIN, "the domain has no PoP any more"),
    EventKind("pop.edge-added", About.DOMAIN, "an edge switch was onboarded"),
    EventKind("pop.edge-removed", About.DOMAIN, "an edge switch was taken out"),
    EventKind("pop.server-added", About.DOMAIN, "a firewall server may get tenants"),
    EventKind("pop.server", About.DOMAIN, "a firewall server serves, drains, or is lost"),
    EventKind("pop.server-removed", About.DOMAIN, "a firewall server was taken out of the PoP"),
    EventKind("pop.placed", About.DOMAIN, "somebody has said which server serves some tenants"),
    EventKind("pop.moved", About.DOMAIN, "tenants have another firewall server"),
    EventKind("pop.rebuilt", About.DOMAIN, "the edge's lines were built anew, and why"),
    EventKind("pop.heavy", About.DOMAIN, "other rules are heavy hitters, whose packets go past the firewall servers"),
    EventKind("capacity.measured", About.SERVICE, "there are new measurements of what a firewall VNF carries"),
    EventKind("endpoint.written", About.DOMAIN, "an endpoint was added or changed"),
    EventKind("endpoint.removed", About.DOMAIN, "an endpoint was taken out"),
    EventKind("domain-proposal.made", About.DOMAIN, "a change of operator rules or approvals waits for another person"),
    EventKind("domain-proposal.approved", About.DOMAIN, "another person approved a change of the domain"),
    EventKind("domain-proposal.rejected", About.DOMAIN, "a proposed change of the domain was rejected"),
    EventKind("domain-proposal.withdrawn", About.DOMAIN, "a proposed change of the domain was withdrawn by its author"),
    EventKind("approvals.changed", About.DOMAIN, "what of the domain needs the approval of another person has changed"),
    EventKind("operator-rules.replaced", About.DOMAIN, "the operator's rules were replaced"),
    EventKind("placement.settings", About.DOMAIN, "how the domain chooses the rules that it lifts has changed"),
    EventKind("placement.wished", About.DOMAIN, "a rule was pinned, forbidden to be lifted, or left to the chooser"),
    EventKind("placement.lifted", About.DOMAIN, "a rule is decided ahead of its list"),
    EventKind("placement.lowered", About.DOMAIN, "a rule is back in its list"),
    EventKind("enforcer.invited", About.DOMAIN, "an enrolment token was made"),
    EventKind("enforcer.enrolled", About.DOMAIN, "an enforcement point has joined"),
    EventKind("enforcer.up", About.DOMAIN, "an enforcement point reports, for the first time or again"),
    EventKind(
        "enforcer.down", About.DOMAIN, "an enforcement point was not heard of for long; switches hold what they held"
    ),
    EventKind("enforcer.removed", About.DOMAIN, "an enforcement point was removed, its token revoked"),
    EventKind("enforcer.renewed", About.DOMAIN, "an enforcement point has a new token"),
    EventKind("certificate.renewed", About.DOMAIN, "an enforcement point has a new certificate"),
    EventKind("certificate.issued", About.DOMAIN, "the switch of a host was given a certificate"),
    EventKind("certificate.revoked", About.DOMAIN, "a certificate is valid no more"),
    EventKind("enrolment-group.created", About.DOMAIN, "a token for the machines of a group was made"),
    EventKind("enrolment-group.removed", About.DOMAIN, "the token of a group admits nobody any more"),
    EventKind("enrolment.refused", About.SERVICE, "a machine was not let in: by which address, name and reason"),
    EventKind("token.created", About.SERVICE, "a token was made"),
    EventKind("token.rotated", About.SERVICE, "a token was replaced by another"),
    EventKind("token.revoked", About.SERVICE, "a token is valid no more"),
    EventKind("audit.unanchored", About.SERVICE, "a sink of the audit trail takes no anchors, and why"),
    EventKind("clock.jumped", About.SERVICE, "the clock jumped forward: rules that deny end later, until a restart"),
    EventKind("store.restored", About.SERVICE, "the database was put back from a backup: what came after it is gone"),
)

KINDS: Mapping[str, EventKind] = MappingProxyType({kind.name: kind for kind in _DECLARED})

OBSERVED = frozenset(
    {
        "acl.enforced", "audit.unanchored", "enforcer.down", "enforcer.up", "enrolment.refused",
        "expectations.broken", "firewall.given-up", "firewall.heard", "firewall.made", "firewall.trouble",
        "firewall.unmade", "generation.enforced", "generation.published", "host.disconnected", "host.drifted",
        "host.full", "host.impersonated", "host.recovered", "host.refused", "onboarding.step", "pop.heavy",
        "pop.rebuilt", "rule.expiring", "vnf.sick", "vnf.well",
    }
)  # fmt: skip
"""Kinds that tell what was seen to happen. All others are somebody's acts, or the service's own, and are audited."""


def about(kind: str) -> About:
    """Return whom events of a kind are about.

    Of one that is not declared only administrators learn.
    """
    return KINDS[kind].about if kind in KINDS else About.SERVICE

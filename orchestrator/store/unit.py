"""A unit of work: the repositories over one transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from orchestrator.store.acls.expiry import Expiry
from orchestrator.store.acls.groups import EndpointGroups, Groups
from orchestrator.store.acls.lists import Acls
from orchestrator.store.acls.waivers import Waivers
from orchestrator.store.audit import Audit
from orchestrator.store.domains import Domains
from orchestrator.store.drafts import Drafts, Expectations
from orchestrator.store.events import Events
from orchestrator.store.firewalls.fleets import Capacities, Fleets
from orchestrator.store.firewalls.machines import Firewalls
from orchestrator.store.firewalls.spreads import Spreads
from orchestrator.store.hits.counting import Counting
from orchestrator.store.hits.rules import Hits
from orchestrator.store.hits.summary import HitSummaries
from orchestrator.store.intersections import Intersections
from orchestrator.store.packetlog import PacketLog
from orchestrator.store.placements import Placements
from orchestrator.store.points.certificates import Certificates
from orchestrator.store.points.enrolments import Enforcers
from orchestrator.store.points.onboardings import Onboardings
from orchestrator.store.pops.pops import Pops
from orchestrator.store.proposals import Proposals
from orchestrator.store.replies import Replies
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.tenants import Tenants
from orchestrator.store.tokens import Tokens
from orchestrator.store.transaction import LAST_BACKUP, Transaction

_R = TypeVar("_R")


def _repository(make: Callable[[Transaction], _R]) -> cached_property[_R]:
    """Return a property that makes a unit's repository when it is first used.

    A unit needs few of its repositories.
    """
    return cached_property(lambda unit: make(unit.transaction))


class Unit:
    """The repositories of one transaction. For one thread only, and not after its `with`."""

    tenants = _repository(Tenants)
    acls = _repository(Acls)
    expiry = _repository(Expiry)
    groups = _repository(Groups)
    expectations = _repository(Expectations)
    drafts = _repository(Drafts)
    waivers = _repository(Waivers)
    proposals = _repository(Proposals)
    endpoint_groups = _repository(EndpointGroups)
    domains = _repository(Domains)
    intersections = _repository(Intersections)
    onboardings = _repository(Onboardings)
    placements = _repository(Placements)
    enforcers = _repository(Enforcers)
    certificates = _repository(Certificates)
    firewalls = _repository(Firewalls)
    fleets = _repository(Fleets)
    capacities = _repository(Capacities)
    spreads = _repository(Spreads)
    pops = _repository(Pops)
    tokens = _repository(Tokens)
    hits = _repository(Hits)
    hit_summaries = _repository(HitSummaries)
    counting = _repository(Counting)
    packet_log = _repository(PacketLog)
    events = _repository(Events)
    audit = _repository(Audit)
    replies = _repository(Replies)

    def __init__(self, tx: Transaction) -> None:
        self.transaction = tx

    @property
    def now(self) -> dt.datetime:
        """The time that everything in this unit bears."""
        return self.transaction.now

    @property
    def clock_jumped(self) -> dt.timedelta:
        """By how much the clock has jumped forward since the store was opened."""
        return self.transaction.jumped

    @property
    def last_backup(self) -> dt.datetime | None:
        """When the store was backed up last, as far as it knows."""
        made = self.transaction.highest(LAST_BACKUP)
        return from_micros(made) if made else None

    @property
    def generations(self) -> Mapping[str, int]:
        """The domains whose generation this unit moved, and to what."""
        return MappingProxyType(self.transaction.generations)

    def note_moves(self) -> Mapping[str, int]:
        """Begin to collect the domains that move, with their generations.

        They are collected until this is called again. Domains that had moved before are there once they move again.
        """
        moved = self.transaction.moving = {}
        return moved

    @property
    def changed_lists(self) -> frozenset[str]:
        """The tenants whose access list this unit changed."""
        return frozenset(self.transaction.lists)

    def rules_before(self, tenant: str) -> int:
        """Return how many rules a tenant's list, one of `changed_lists`, has without this unit."""
        known = self.transaction.rules_before.get(tenant)
        if known is not None:
            return known
        before = self.acls.versions(tenant, limit=1, marker=self.transaction.lists[tenant] + 1)
        return before[0].rules if before else 0

    @property
    def reverted_lists(self) -> frozenset[str]:
        """The tenants whose unconfirmed change this unit takes back.

        No limit stands against that.
        """
        return frozenset(self.transaction.reverted)

    @property
    def stride(self) -> int:
        """How far a change of this unit moves a domain's generation."""
        return self.transaction.stride

    def pass_step(self, domain: str, step: str) -> None:
        """Pass a step of a domain's program on with the notice of the commit."""
        self.transaction.steps[domain] = step

    @property
    def moves_hosts(self) -> bool:
        """Whether hosts may have come or gone."""
        return self.transaction.moves_hosts

    @property
    def sets_times(self) -> bool:
        """Whether rules that expire may have come in."""
        return self.transaction.sets_times

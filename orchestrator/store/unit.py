"""A unit of work: the repositories over one transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from orchestrator.store.acls.groups import Groups
from orchestrator.store.acls.lists import Acls
from orchestrator.store.domains import Domains
from orchestrator.store.events import Events
from orchestrator.store.firewalls.capacities import Capacities
from orchestrator.store.firewalls.fleets import Fleets
from orchestrator.store.firewalls.machines import Firewalls
from orchestrator.store.firewalls.spreads import Spreads
from orchestrator.store.hits.counting import Counting
from orchestrator.store.hits.rules import Hits
from orchestrator.store.hits.summary import HitSummaries
from orchestrator.store.intersections import Intersections
from orchestrator.store.packetlog import PacketLog
from orchestrator.store.placements import Placements
from orchestrator.store.points.certificates import Certificates
from orchestrator.store.points.enforcers import Enforcers
from orchestrator.store.points.onboardings import Onboardings
from orchestrator.store.pops.pops import Pops
from orchestrator.store.replies import Replies
from orchestrator.store.tenants import Tenants
from orchestrator.store.tokens import Tokens
from orchestrator.store.transaction import Transaction


class Unit:
    """The repositories of one transaction. For one thread only, and not after its `with`."""

    def __init__(self, tx: Transaction) -> None:
        self.tenants = Tenants(tx)
        self.acls = Acls(tx)
        self.groups = Groups(tx)
        self.domains = Domains(tx)
        self.intersections = Intersections(tx)
        self.onboardings = Onboardings(tx)
        self.placements = Placements(tx)
        self.enforcers = Enforcers(tx)
        self.certificates = Certificates(tx)
        self.firewalls = Firewalls(tx)
        self.fleets = Fleets(tx)
        self.capacities = Capacities(tx)
        self.spreads = Spreads(tx)
        self.pops = Pops(tx)
        self.tokens = Tokens(tx)
        self.hits = Hits(tx)
        self.hit_summaries = HitSummaries(tx)
        self.counting = Counting(tx)
        self.packet_log = PacketLog(tx)
        self.events = Events(tx)
        self.replies = Replies(tx)
        self._tx = tx

    @property
    def now(self) -> dt.datetime:
        """The time that everything in this unit bears."""
        return self._tx.now

    @property
    def generations(self) -> Mapping[str, int]:
        """The domains whose generation this unit moved, and to what."""
        return MappingProxyType(self._tx.generations)

    @contextmanager
    def noting_moves(self) -> Iterator[dict[str, int]]:
        """The domains that are moved within the block, and to which generation: also those that had moved before."""
        moved = self._tx.moving = {}
        yield moved

    @property
    def changed_lists(self) -> frozenset[str]:
        """The tenants whose access list this unit changed."""
        return frozenset(self._tx.lists)

    @property
    def moves_hosts(self) -> bool:
        """Whether hosts may have come or gone."""
        return self._tx.moves_hosts

    @property
    def sets_times(self) -> bool:
        """Whether rules that expire may have come in."""
        return self._tx.sets_times

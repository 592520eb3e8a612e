"""Fleets of firewall VNFs: settings, decisions and samples, and capacities of one VNF.

Their members are in `members.py`, the other half of the repository.

Changes that belong together are one transaction: a decision and the rows of the VNFs that it asks for; a step of a
VNF's life and what it means for the domain (`lifecycle.py` of `scaling` draws the states).

Of capacities every version of measurements is kept, not what was fitted to them, so that a better fit serves old
measurements too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select, update

from orchestrator.errors import BadInput, Conflict, NotFound
from orchestrator.scaling.capacity import CapacityModel, Measured, fit
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.firewalls.fleetrecords import (
    CapacityRecord,
    FleetLook,
    FleetRecord,
    FleetSettings,
    settings_from,
)
from orchestrator.store.firewalls.members import FleetMembers
from orchestrator.store.schema.acls import acl_versions
from orchestrator.store.schema.core import operator_rules, tenants
from orchestrator.store.schema.firewalls import (
    capacity_models,
    fleet_decisions,
    fleet_keeper,
    fleet_members,
    fleet_samples,
    fleets,
)
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction, expect, one_line
from orchestrator.wire.firewalls import FleetDecision, FleetSample, Plane

_KEEPER = 1
_DECISIONS_KEPT = 1000


class Fleets(FleetMembers):
    """The fleets' repository."""

    # --------------------------------------------------------------------------------------------------- settings

    def get(self, domain: str) -> FleetRecord:
        """Return a domain's fleet.

        Raises NotFound: for a domain that does not exist, and for one without a fleet.
        """
        self._tx.domain(domain)
        row = self._tx.read(select(fleets).where(fleets.c.domain == domain)).one_or_none()
        if row is None:
            raise NotFound(f"the domain '{domain}' has no fleet: set its limits first")
        return _read_record(row)

    def put(self, domain: str, settings: FleetSettings, *, expected_version: int | None = None) -> FleetRecord:
        """Set how a fleet is to be; the first time makes it.

        Raises NotFound, Stale, and Conflict where others are to decide about VNFs that are there.
        """
        self._tx.domain(domain)
        row = self._tx.read(select(fleets).where(fleets.c.domain == domain)).one_or_none()
        body = orjson.dumps(settings.to_json()).decode()
        if row is None:
            self._tx.write(
                insert(fleets).values(domain=domain, version=1, body=body, next_number=0, because="nothing decided yet")
            )
        else:
            expect(expected_version, row.version)
            if _read_record(row).settings.alarms is not settings.alarms and (count := self._count(domain)):
                raise Conflict(
                    f"whoever made the fleet's {count} VNFs takes them away too: first have none of them",
                    place="alarms",
                )
            self._tx.write(
                update(fleets)
                .where(fleets.c.domain == domain)
                .values(version=row.version + 1, body=body, looked=None)  # decided anew, at once
            )
        return self.get(domain)

    def remove(self, domain: str, *, expected_version: int | None = None) -> None:
        """Forget a fleet. Raises NotFound, Stale, and Conflict while any of its VNFs is there."""
        known = self.get(domain)
        expect(expected_version, known.version)
        if count := self._count(domain):
            raise Conflict(f"the fleet still has {count} VNFs: set its size to 0, then wait until they are gone")
        self._tx.write(delete(fleets).where(fleets.c.domain == domain))

    def _count(self, domain: str) -> int:
        """How many VNFs of a fleet are there."""
        left = select(func.count()).where(fleet_members.c.domain == domain, fleet_members.c.state != _GONE)
        return int(self._tx.read(left).scalar_one())

    def list(self) -> tuple[FleetRecord, ...]:
        """Every fleet, by domain."""
        return tuple(_read_record(row) for row in self._tx.read(select(fleets).order_by(fleets.c.domain)))

    def looks(self, domain: str | None = None) -> tuple[FleetLook, ...]:
        """Return every fleet, or one domain's, with members and their agents' last reports."""
        found = {
            name: tuple(members)
            for name, members in groupby(self.member_looks(domain), key=lambda look: look.member.domain)
        }
        records = self.list() if domain is None else (self.get(domain),)
        return tuple(FleetLook(record, found.get(record.domain, ())) for record in records)

    # -------------------------------------------------------------------------------------------------- decisions

    def note_decision(self, domain: str, size: int, because: str, *, model: int | None) -> None:
        """Note what was decided now, whether or not it changes anything."""
        values = {"looked": self._tx.micros, "size": size, "because": because, "model": model}
        self._tx.write(update(fleets).where(fleets.c.domain == domain).values(**values))

    def record(self, domain: str, before: int, size: int, because: str, *, by: str) -> None:
        """Keep a change of size, with its reason, and say it."""
        values = {"domain": domain, "at": self._tx.micros, "before": before, "size": size, "because": because, "by": by}
        kept = self._tx.write(insert(fleet_decisions).values(**values).returning(fleet_decisions.c.id)).scalar_one()
        columns = fleet_decisions.c
        self._tx.write(delete(fleet_decisions).where(columns.domain == domain, columns.id <= kept - _DECISIONS_KEPT))
        self._events.append("fleet.resized", domain, {"before": before, "size": size, "because": because, "by": by})

    def decisions(self, domain: str, *, limit: int = 100, before: int | None = None) -> tuple[FleetDecision, ...]:
        """Return changes of size, newest first, before an id if named.

        Raises NotFound.
        """
        self.get(domain)
        statement = select(fleet_decisions).where(fleet_decisions.c.domain == domain)
        if before is not None:
            statement = statement.where(fleet_decisions.c.id < before)
        rows = self._tx.read(statement.order_by(fleet_decisions.c.id.desc()).limit(limit))
        return tuple(
            FleetDecision(row.id, from_micros(row.at), row.before, row.size, row.because, row.by) for row in rows
        )

    # ---------------------------------------------------------------------------------------------------- samples

    def sample(self, domain: str, sample: FleetSample, keep_s: float) -> None:
        """Keep what a fleet carried, and forget what is older than `keep_s`."""
        columns = fleet_samples.c
        oldest = to_micros(sample.at) - int(keep_s * 1_000_000)
        self._tx.write(delete(fleet_samples).where(columns.domain == domain, columns.at < oldest))
        values = {name: value for name, value in asdict(sample).items() if name != "at"}
        row = self._tx.upsert(fleet_samples).values(domain=domain, at=to_micros(sample.at), **values)
        self._tx.write(row.on_conflict_do_update(index_elements=["domain", "at"], set_=values))

    def samples(self, domain: str, since: dt.datetime | None = None) -> tuple[FleetSample, ...]:
        """Return a fleet's load samples, oldest first."""
        columns = fleet_samples.c
        statement = select(fleet_samples).where(columns.domain == domain)
        if since is not None:
            statement = statement.where(columns.at >= to_micros(since))
        return tuple(_read_sample(row) for row in self._tx.read(statement.order_by(columns.at)))

    def rules(self, domains: Iterable[str]) -> dict[str, int]:
        """Count the rules of each domain's firewalls, including writes not enforced yet."""
        wanted = tuple(domains)
        of_tenants = (
            select(tenants.c.domain, func.sum(acl_versions.c.rules).label("rules"))
            .join(acl_versions, acl_versions.c.tenant == tenants.c.number)
            .where(acl_versions.c.version == tenants.c.acl_version, tenants.c.domain.in_(wanted))
            .group_by(tenants.c.domain)
        )
        operators = (
            select(operator_rules.c.domain, func.count().label("rules"))
            .where(operator_rules.c.domain.in_(wanted))
            .group_by(operator_rules.c.domain)
        )
        counted = dict.fromkeys(wanted, 0)
        for statement in (of_tenants, operators):
            for row in self._tx.read(statement):
                counted[row.domain] += int(row.rules)
        return counted

    # ------------------------------------------------------------------------------------------------- who may work

    def keep(self, holder: str, lease_s: float) -> bool:
        """Become or stay the process that works on fleets; False while another is.

        A lease that lasts far longer than that was taken before a clock was set back, and binds nobody.
        """
        row = self._tx.read(select(fleet_keeper).where(fleet_keeper.c.id == _KEEPER)).one_or_none()
        now, lease = self._tx.micros, int(lease_s * 1_000_000)
        if row is not None and row.holder != holder and now < row.until <= now + _LONGEST_LEASES * lease:
            return False
        values = {"holder": holder, "until": now + lease}
        mine = self._tx.upsert(fleet_keeper).values(id=_KEEPER, **values)
        self._tx.write(mine.on_conflict_do_update(index_elements=["id"], set_=values))
        return True

    def is_keeper(self, holder: str) -> bool:
        """Whether that process may still work on fleets.

        On PostgreSQL no other may until this transaction is over.
        """
        mine = select(fleet_keeper).where(fleet_keeper.c.id == _KEEPER).with_for_update(read=True)
        row = self._tx.read(mine).one_or_none()
        return row is not None and row.holder == holder and row.until > self._tx.micros

    def resign(self, holder: str) -> None:
        """Let another process work on fleets at once."""
        mine = (fleet_keeper.c.id == _KEEPER) & (fleet_keeper.c.holder == holder)
        self._tx.write(delete(fleet_keeper).where(mine))


_GONE = MemberState.GONE.value
_LONGEST_LEASES = 10
"""So many times as long as ours a lease may last, by the clock of a replica that is ahead of us."""


def _read_record(row: Row[Any]) -> FleetRecord:
    looked = None if row.looked is None else from_micros(row.looked)
    settings = settings_from(orjson.loads(row.body))
    return FleetRecord(row.domain, row.version, settings, looked, row.size, row.because, row.model)


def _read_sample(row: Row[Any]) -> FleetSample:
    numbers = row.packets_pps, row.bits_bps, row.connections, row.serving, row.most_pps, row.rules
    return FleetSample(from_micros(row.at), *numbers)


_MOST_MEASUREMENTS = 10_000


class Capacities:
    """The capacity models' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, plane: Plane, measured: Sequence[Measured], *, source: str) -> CapacityRecord:
        """Store measurements as a plane's newest version.

        Raises BadInput where no model fits them.
        """
        one_line(source, place="source")
        if len(measured) > _MOST_MEASUREMENTS:
            raise BadInput(f"more than {_MOST_MEASUREMENTS} measurements", place="measured")
        fit(measured, version=0)
        values = {
            "plane": plane.value,
            "created": self._tx.micros,
            "source": source,
            "measured": orjson.dumps([asdict(each) for each in measured]).decode(),
        }
        row = self._tx.write(insert(capacity_models).values(**values).returning(*capacity_models.c)).one()
        return _read_capacity(row)

    def list(self) -> tuple[CapacityRecord, ...]:
        """Every version, the newest first."""
        return tuple(
            _read_capacity(row)
            for row in self._tx.read(select(capacity_models).order_by(capacity_models.c.version.desc()))
        )

    def get(self, version: int) -> CapacityRecord:
        """Return a capacity model. Raises NotFound."""
        row = self._tx.read(select(capacity_models).where(capacity_models.c.version == version)).one_or_none()
        if row is None:
            raise NotFound(f"there is no capacity model {version}")
        return _read_capacity(row)

    def current(self) -> dict[Plane, CapacityModel]:
        """The model that counts for each plane that was measured: the newest."""
        newest = select(func.max(capacity_models.c.version)).group_by(capacity_models.c.plane)
        rows = self._tx.read(select(capacity_models).where(capacity_models.c.version.in_(newest)))
        return {Plane(row.plane): model_of(_read_capacity(row)) for row in rows}


@lru_cache(maxsize=64)
def model_of(record: CapacityRecord) -> CapacityModel:
    """The model that fits a version's measurements."""
    return fit(record.measured, version=record.version)


def _read_capacity(row: Row[Any]) -> CapacityRecord:
    measured = tuple(Measured(**each) for each in orjson.loads(row.measured))
    return CapacityRecord(row.version, Plane(row.plane), from_micros(row.created), row.source, measured)

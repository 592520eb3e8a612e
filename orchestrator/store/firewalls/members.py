"""The VNFs of fleets: rows with wanted and actual state, kept long after the end.

A member is a firewall of its domain from the moment that it is asked for until it is on its end, so that its agent
finds a program to load, and nobody waits for it any more afterwards.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Row, delete, insert, select, update

from orchestrator.errors import Conflict, NotFound
from orchestrator.scaling.lifecycle import COMING, ENDING, Health, MemberState, Step
from orchestrator.store.events import Events
from orchestrator.store.firewalls.fleetrecords import FleetTimes, Member, MemberLook, Place, TrialSheet
from orchestrator.store.firewalls.machines import Firewalls
from orchestrator.store.records import FirewallRecord
from orchestrator.store.schema.core import enforcers, firewall_loads, hosts, points
from orchestrator.store.schema.firewalls import fleet_members, fleets
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.transaction import Transaction
from orchestrator.wire.firewalls import Load, Plane
from orchestrator.wire.points import PointState

_GONE_KEPT = 200
_LONGEST_WORDS = 1024
_C = fleet_members.c
_THERE = _C.state != MemberState.GONE.value
_STAMPS = {MemberState.SERVING: "served", MemberState.DRAINING: "drained", MemberState.FAILED: "failed"}
_TOLD = {
    MemberState.SERVING: "vnf.serving",
    MemberState.DRAINING: "vnf.draining",
    MemberState.FAILED: "vnf.failed",
    MemberState.GONE: "vnf.gone",
}


class FleetMembers:
    """Members of fleets."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._events = Events(tx)
        self._firewalls = Firewalls(tx)

    # ---------------------------------------------------------------------------------------------------- looking

    def members(self, domain: str, *, with_gone: bool = False) -> tuple[Member, ...]:
        """A fleet's VNFs by number."""
        statement = select(fleet_members).where(_C.domain == domain).order_by(_C.number)
        return tuple(_read_member(row) for row in self._tx.read(statement if with_gone else statement.where(_THERE)))

    def member(self, domain: str, name: str) -> Member:
        """One VNF, gone or not. Raises NotFound."""
        row = self._tx.read(select(fleet_members).where(_C.domain == domain, _C.name == name)).one_or_none()
        if row is None:
            raise NotFound(f"the fleet has no VNF '{name}'")
        return _read_member(row)

    def member_looks(self, domain: str | None = None) -> tuple[MemberLook, ...]:
        """Members that are not gone, by domain and number, with what their agents said last."""
        statement = _LOOKS if domain is None else _LOOKS.where(_C.domain == domain)
        return tuple(map(_read_look, self._tx.read(statement)))

    def names(self) -> frozenset[tuple[str, str]]:
        """Return domain and name of every member that is not gone."""
        return frozenset((row.domain, row.name) for row in self._tx.read(select(_C.domain, _C.name).where(_THERE)))

    def times(self, domain: str, since_s: float) -> FleetTimes:
        """Read when members were asked for, drained and failed lately."""
        since = self._tx.micros - int(since_s * 1_000_000)
        rows = self._tx.read(select(_C.asked, _C.drained, _C.failed).where(_C.domain == domain)).all()
        columns = ([row[at] for row in rows if row[at] is not None and row[at] >= since] for at in range(3))
        return FleetTimes(*(tuple(from_micros(time) for time in sorted(column)) for column in columns))

    # --------------------------------------------------------------------------------------------------- changing

    def ask(self, domain: str, count: int, plane: Plane, because: str) -> tuple[str, ...]:
        """Ask for `count` more members; return their names. Raises NotFound without a fleet."""
        taken = {each.name for each in self._tx.read(select(hosts.c.name).where(hosts.c.domain == domain))}
        number = self._next_number(domain)
        names: list[str] = []
        while len(names) < count:
            name = f"fw-{number}"
            if name not in taken:
                self._insert_member(domain, name, number, plane, MemberState.REQUESTED, because)
                names.append(name)
            number += 1
        self._tx.write(update(fleets).where(fleets.c.domain == domain).values(next_number=number))
        return tuple(names)

    def unknown(self, domain: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that nothing of the domain has or ever had."""
        members = select(_C.name).where(_C.domain == domain)
        others = select(hosts.c.name).where(hosts.c.domain == domain)
        taken = {row.name for row in self._tx.read(members.union(others))}
        return tuple(name for name in dict.fromkeys(names) if name not in taken)

    def adopt(self, domain: str, names: Iterable[str], plane: Plane) -> tuple[str, ...]:
        """Add the cloud's own VNFs to a fleet; return their names.

        Raises NotFound without a fleet.
        """
        number = self._next_number(domain)
        new = self.unknown(domain, names)
        for index, name in enumerate(new):
            self._insert_member(domain, name, number + index, plane, MemberState.BUILDING, "the cloud has made it")
            self._events.append("vnf.adopted", domain, {"name": name})
        self._tx.write(update(fleets).where(fleets.c.domain == domain).values(next_number=number + len(new)))
        return new

    def _next_number(self, domain: str) -> int:
        row = self._tx.read(select(fleets.c.next_number).where(fleets.c.domain == domain)).one_or_none()
        if row is None:
            raise NotFound(f"the domain '{domain}' has no fleet")
        return int(row.next_number)

    def _insert_member(
        self, domain: str, name: str, number: int, plane: Plane, state: MemberState, because: str
    ) -> None:
        fresh = {
            "domain": domain,
            "name": name,
            "number": number,
            "plane": plane.value,
            "state": state.value,
            "since": self._tx.micros,
            "asked": self._tx.micros,
            "generation": self._firewalls.join(domain, FirewallRecord(name, plane)),
            "because": because[:_LONGEST_WORDS],
            "progress": "",
            "relapses": "[]",
        }
        self._tx.write(insert(fleet_members).values(fresh))

    def advance(self, member: Member, step: Step) -> bool:
        """Move a VNF to its next state; False if it changed meanwhile."""
        if self.member(member.domain, member.name).state is not member.state:
            return False
        values: dict[str, object] = {
            "state": step.state.value,
            "since": self._tx.micros,
            "because": step.because[:_LONGEST_WORDS],
        }
        if step.state in _STAMPS:
            values[_STAMPS[step.state]] = self._tx.micros
        self._set_values(member.domain, member.name, values)
        if step.state in ENDING:
            self._withdraw(member.domain, member.name)
        if step.state is MemberState.GONE:
            self._forget_oldest(member.domain)
        if step.state in _TOLD:
            detail = {"name": member.name, "before": member.state.value, "because": step.because}
            self._events.append(_TOLD[step.state], member.domain, detail)
        return True

    def drain(self, domain: str, name: str, because: str) -> MemberState:
        """Stop wanting a VNF; return its state.

        It is drained if it serves, else it leaves at once.

        One that is on its end already stays so. Raises NotFound, and Conflict for one that is gone.
        """
        known = self.member(domain, name)
        if known.state is MemberState.GONE:
            raise Conflict(f"the VNF '{name}' is gone")
        if known.state is MemberState.SERVING:
            self.advance(known, Step(MemberState.DRAINING, because))
        elif known.state in COMING:
            self.advance(known, Step(MemberState.LEAVING, because))
        return self.member(domain, name).state

    def note(self, member: Member, *, progress: str | None = None, place: Place | None = None) -> None:
        """Store how far the cloud has come with a VNF, and the VNF's place."""
        values: dict[str, object] = {}
        if progress is not None:
            values["progress"] = progress[:_LONGEST_WORDS]
        if place is not None:
            values["place"] = place.to_json()
        self._set_values(member.domain, member.name, values)

    def set_health(self, member: Member, health: Health, trouble: str) -> None:
        """Keep how a VNF is; it falling sick, and being well again, is said."""
        values = {
            "sick_since": _to_micros(health.sick_since_s),
            "well_since": _to_micros(health.looks_well_since_s),
            "relapses": orjson.dumps(list(health.fell_sick_s)).decode(),
        }
        self._set_values(member.domain, member.name, values)
        if health.is_well != member.health.is_well:
            kind = "vnf.well" if health.is_well else "vnf.sick"
            self._events.append(kind, member.domain, {"name": member.name, "because": trouble})

    def set_trial(self, domain: str, name: str, sheet: TrialSheet) -> None:
        """Keep what a VNF is to be tried with, or what came of it."""
        self._set_values(domain, name, {"trial": sheet.to_json()})

    def name_of(self, enforcer: int) -> tuple[str, str]:
        """Domain and name of an enforcement point. Raises NotFound."""
        row = self._tx.read(
            select(enforcers.c.domain, enforcers.c.name).where(enforcers.c.id == enforcer)
        ).one_or_none()
        if row is None:
            raise NotFound(f"there is no enforcer {enforcer}")
        return row.domain, row.name

    def _set_values(self, domain: str, name: str, values: Mapping[str, object]) -> None:
        if values:
            self._tx.write(update(fleet_members).where(_C.domain == domain, _C.name == name).values(**values))

    def _withdraw(self, domain: str, name: str) -> None:
        """Remove a firewall from its domain, and its agent's rights."""
        self._firewalls.leave(domain, name)
        self._tx.write(delete(enforcers).where(enforcers.c.domain == domain, enforcers.c.name == name))

    def _forget_oldest(self, domain: str) -> None:
        """Delete the rows of VNFs that are gone, but for the newest."""
        gone = select(_C.number).where(_C.domain == domain, ~_THERE).order_by(_C.number.desc()).offset(_GONE_KEPT)
        highest = self._tx.read(gone.limit(1)).scalar_one_or_none()
        if highest is not None:
            self._tx.write(delete(fleet_members).where(_C.domain == domain, ~_THERE, _C.number <= highest))


_LOOKS = (
    select(
        fleet_members,
        enforcers.c.id.label("enforcer"),
        points.c.generation.label("holds"),
        points.c.state.label("point"),
        points.c.error,
        firewall_loads.c.reported,
        firewall_loads.c.packets_pps,
        firewall_loads.c.bits_bps,
        firewall_loads.c.cpu_permille,
        firewall_loads.c.connections,
        firewall_loads.c.trouble,
    )
    .outerjoin(enforcers, (enforcers.c.domain == _C.domain) & (enforcers.c.name == _C.name))
    .outerjoin(points, (points.c.domain == _C.domain) & (points.c.host == _C.name))
    .outerjoin(firewall_loads, (firewall_loads.c.domain == _C.domain) & (firewall_loads.c.host == _C.name))
    .where(_THERE)
    .order_by(_C.domain, _C.number)
)


def _read_look(row: Row[Any]) -> MemberLook:
    load = None
    if row.reported is not None:
        load = Load(row.packets_pps, row.bits_bps, row.cpu_permille, row.connections, row.trouble)
    return MemberLook(
        _read_member(row),
        row.enforcer is not None,
        row.holds,
        None if row.point is None else PointState(row.point),
        row.error,
        load,
        _read_time(row.reported),
    )


def _read_member(row: Row[Any]) -> Member:
    sick: Sequence[float] = orjson.loads(row.relapses)
    return Member(
        row.domain,
        row.name,
        row.number,
        Plane(row.plane),
        MemberState(row.state),
        from_micros(row.since),
        from_micros(row.asked),
        row.generation,
        row.because,
        row.progress,
        _read_time(row.served),
        _read_time(row.drained),
        _read_time(row.failed),
        Health(_to_seconds(row.sick_since), _to_seconds(row.well_since), tuple(sick)),
        None if row.trial is None else TrialSheet.of(row.trial),
        Place.of(row.place),
    )


def _read_time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else from_micros(micros)


def _to_micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _to_seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000

"""Reports of enforcement points about their hosts, and the events that follow.

This is the other half of the enforcers' repository, in `enrolments.py`.

A report is one transaction: the points, and the events that they give rise to. A host whose state turns bad or good
again is an event; so is a generation that the last host has reached, for the domain and for each tenant whose list came
with it. Reports of an enforcer that was replaced by a later one (a higher epoch) are refused, so that a controller that
was believed dead cannot talk over its successor.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, case, func, literal_column, null, or_, select, update
from sqlalchemy.sql import Insert

from orchestrator.errors import NotFound
from orchestrator.program.program import Tier
from orchestrator.store.events import Events
from orchestrator.store.hostrows import keep_ports
from orchestrator.store.points.acceptance import Scope, accept, check_epoch, clean_text, holds, is_stored
from orchestrator.store.points.generations import raise_above
from orchestrator.store.points.pointrecords import (
    EnforcedState,
    Heard,
    HeldRecord,
    Laggard,
    Move,
    PointRecord,
    PointReport,
    Standing,
)
from orchestrator.store.records import UNWRITTEN
from orchestrator.store.schema.acls import acl_versions
from orchestrator.store.schema.core import domains, enforcers, hosts, points, tenants
from orchestrator.store.schema.firewalls import EDGE, fleet_members
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.sql.prepared import Insertion, Prepared
from orchestrator.store.transaction import Transaction
from orchestrator.wire.points import Leading, PointState

_ENFORCED = PointState.ENFORCED.value
_BAD = frozenset(state.value for state in (PointState.REFUSED, PointState.DRIFTED, PointState.DISCONNECTED))


_MEMBER = and_(fleet_members.c.domain == hosts.c.domain, fleet_members.c.name == hosts.c.name)
_COUNTS = or_(fleet_members.c.name.is_(None), fleet_members.c.served.is_not(None))
"""Nobody waits for a VNF of a fleet before it has served."""
_READ_BACK = points.c.state == literal_column(f"'{_ENFORCED}'")
_AT = case((_READ_BACK, points.c.generation))
"""The generation that a host enforces, if it enforces any."""


def _of_counted_hosts(query: Select[Any]) -> Select[Any]:
    """Select of a domain's hosts that somebody waits for, with their latest reports."""
    reported = and_(points.c.domain == hosts.c.domain, points.c.host == hosts.c.name)
    found = query.select_from(hosts).outerjoin(points, reported).outerjoin(fleet_members, _MEMBER)
    return found.where(hosts.c.domain == bindparam("of_domain"), _COUNTS)


_COUNTED = Prepared(_of_counted_hosts(select(_AT.label("reached"), func.count().label("hosts"))).group_by(_AT))
_HOSTS_WITH_POINTS = _of_counted_hosts(select(hosts.c.name, *points.c)).order_by(hosts.c.name)
_POINTS = Prepared(_HOSTS_WITH_POINTS.where(points.c.host.is_not(None)))
_LAGGARDS = Prepared(_HOSTS_WITH_POINTS.where(or_(_AT.is_(None), points.c.generation < bindparam("wanted"))))
_HELD_SINCE = case((points.c.generation > hosts.c.since, points.c.generation), else_=hosts.c.since)
_SWITCHES = Prepared(
    select(
        _HELD_SINCE.label("generation"),
        points.c.digest,
        func.max(points.c.reported).label("reported"),
        domains.c.behind,
    )
    .select_from(hosts)
    .join(domains, domains.c.id == hosts.c.domain)
    .outerjoin(points, and_(points.c.domain == hosts.c.domain, points.c.host == hosts.c.name))
    .where(hosts.c.domain == bindparam("of_domain"), hosts.c.plane.is_(None))
    .group_by(_HELD_SINCE, points.c.digest, domains.c.behind)
)
_LAST_REPORTED = and_(points.c.domain == hosts.c.domain, points.c.host == hosts.c.name)
_OF_PLANE = and_(
    hosts.c.domain == bindparam("of_domain"),
    func.coalesce(hosts.c.plane, literal_column("''")) == bindparam("of_plane"),
)
_IS_HEARD = enforcers.c.last_seen >= bindparam("since")
_OF_ONE_PLANE = Prepared(select(hosts.c.name).where(_OF_PLANE).order_by(hosts.c.name))
_LEADERS = Prepared(
    select(points.c.enforcer)
    .distinct()
    .select_from(hosts)
    .join(points, _LAST_REPORTED)
    .join(enforcers, enforcers.c.id == points.c.enforcer)
    .where(_OF_PLANE, _IS_HEARD)
)
_UNLED = Prepared(
    select(hosts.c.name)
    .select_from(hosts)
    .outerjoin(points, _LAST_REPORTED)
    .outerjoin(enforcers, enforcers.c.id == points.c.enforcer)
    .where(
        _OF_PLANE,
        or_(
            func.coalesce(enforcers.c.last_seen, literal_column("0")) < bindparam("since"),
            points.c.state == literal_column(f"'{PointState.DISCONNECTED.value}'"),
            points.c.enforcer == bindparam("but_of"),
        ),
    )
    .order_by(hosts.c.name)
)
_ENFORCER = Prepared(select(enforcers).where(enforcers.c.id == bindparam("numbered")))
_SEEN = Prepared(
    update(enforcers)
    .where(enforcers.c.id == bindparam("numbered"))
    .values(last_seen=bindparam("at"), sequence=bindparam("latest"), lost=null())
)


def _make_points_upsert(insertion: Insertion) -> Insert:
    new = insertion(points)
    known_by = ("domain", "host")
    words = {column.name: new.excluded[column.name] for column in points.c if column.name not in known_by}
    return new.on_conflict_do_update(index_elements=known_by, set_=words)


_POINT = Prepared(_make_points_upsert)
_STANDS = Prepared(
    update(points)
    .where(points.c.domain == bindparam("of_domain"), points.c.host == bindparam("named"))
    .values(generation=bindparam("at"))
)
_HEARD = Prepared(
    update(enforcers)
    .where(enforcers.c.id == bindparam("numbered"), enforcers.c.last_seen < bindparam("at"), enforcers.c.lost.is_(None))
    .values(last_seen=bindparam("at"))
)
_REACHED = Prepared(update(domains).where(domains.c.id == bindparam("called")).values(enforced=bindparam("reached")))
_LISTS_REACHED = Prepared(
    select(tenants.c.id, tenants.c.number, tenants.c.domain, acl_versions.c.version, acl_versions.c.generation)
    .join(tenants, and_(acl_versions.c.tenant == tenants.c.number, acl_versions.c.version <= tenants.c.acl_version))
    .where(acl_versions.c.generation > bindparam("before"), acl_versions.c.generation <= bindparam("reached"))
    .where(tenants.c.domain == bindparam("of_domain"), acl_versions.c.version > bindparam("unwritten"))
    .order_by(acl_versions.c.generation)
)


class Reports:
    """Points and the events that follow from them."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._events = Events(tx)

    def report(
        self,
        enforcer: int,
        reports: Sequence[PointReport],
        *,
        sequence: int | None = None,
        epoch: int | None = None,
        vouched: Sequence[PointReport] = (),
        standing: Standing | None = None,
    ) -> Standing | None:
        """Store what an enforcer read back.

        Hosts that the domain does not have are passed over.

        `vouched` are other hosts' programs of later generations: those that were read back with just this digest hold
        them, whoever speaks for them. `standing` is that of the domain before this report, where it is known: it spares
        counting all hosts. Returns the standing after it; None where the report moved no host.

        `sequence` grows from report to report of one enforcer; a report that comes late or twice changes nothing.
        Raises NotFound, and Conflict for one of a lower epoch than the enforcer's own, or about hosts of which only
        later enforcers reported, and Forbidden for a host that the enforcer does not speak for. Where a host holds the
        generation behind the domain's, that is raised above it; what is later still was never published, and counts as
        drifted.
        """
        row = self._read_row(enforcer)
        check_epoch(row, epoch)
        if sequence is not None and row.sequence is not None and sequence <= row.sequence:
            return None
        self._note_seen(row, sequence)
        named = {each.host: each for each in vouched}
        known = self._known_hosts(row.domain, {each.host for each in reports} | named.keys())
        mine = accept(row, reports, known, named)
        if not mine:
            return None
        self._tx.each(_POINT, [self._make_point_row(row, report) for report in mine.values()])
        keep_ports(self._tx, row.domain, mine.values())
        self._tell_states(row.domain, mine.values(), known)
        others = {name: each for name, each in named.items() if name not in mine and holds(known.get(name), each)}
        for each in others.values():
            self._tx.rows(_STANDS, of_domain=row.domain, named=each.host, at=each.generation)
        if standing is None or others:
            now = self.standing(row.domain)
        else:
            now = standing.after(_read_move(known[name], report) for name, report in mine.items() if known[name].counts)
        self._tell_enforced(next(iter(known.values())), row.domain, now)
        held = max(report.generation for report in mine.values())
        raise_above(self._tx, row.domain, next(iter(known.values())).generation_now, held)
        return now

    def is_nothing_new(
        self, enforcer: int, reports: Sequence[PointReport], *, epoch: int | None, vouched: Sequence[PointReport]
    ) -> bool:
        """Whether a report would change nothing but when the enforcer was heard last.

        Raises as `report` does.
        """
        row = self._read_row(enforcer)
        check_epoch(row, epoch)
        if row.last_seen is None or row.lost is not None:
            return False
        named = {each.host: each for each in vouched}
        known = self._known_hosts(row.domain, {each.host for each in reports} | named.keys())
        mine = accept(row, reports, known, named)
        return not any(name not in mine and holds(known.get(name), each) for name, each in named.items()) and all(
            is_stored(known[name], row.id, report) for name, report in mine.items()
        )

    def heard_again(self, heard: Mapping[int, dt.datetime]) -> None:
        """Note when some enforcers were heard last, unless they were lost meanwhile."""
        self._tx.each(_HEARD, [{"numbered": each, "at": to_micros(when)} for each, when in sorted(heard.items())])

    def points(self, domain: str) -> tuple[PointRecord, ...]:
        """The latest report about each host, by host. Raises NotFound."""
        self._tx.domain(domain)
        return tuple(_read_point(row) for row in self._tx.rows(_POINTS, of_domain=domain))

    def leading(self, enforcer: int, tier: Tier, *, silence_s: float, begins: bool = False) -> Leading:
        """Return who leads a tier's switches, and those that an enforcer may take.

        Nobody leads a switch whose last report says that it is not connected, or came from somebody who has been silent
        for `silence_s`. An enforcer that `begins` leads none of those that it reported before. Raises NotFound.
        """
        row = self._read_row(enforcer)
        plane = EDGE if tier is Tier.EDGE else ""
        asked = {"of_domain": row.domain, "of_plane": plane, "since": self._tx.micros - int(silence_s * 1_000_000)}
        scope = Scope.of(row)
        found = self._tx.rows(_UNLED, **asked, but_of=enforcer if begins else -1)
        unled = [each.name for each in found if scope.covers(each.name, plane or None)]
        known = {*unled}
        every = self._tx.rows(_OF_ONE_PLANE, of_domain=row.domain, of_plane=plane) if begins else ()
        return Leading(
            tuple(sorted(each.enforcer for each in self._tx.rows(_LEADERS, **asked))),
            tuple(unled),
            tuple(each.name for each in every if each.name not in known),
        )

    def enforced_state(self, domain: str, generation: int) -> EnforcedState:
        """Whether every host was read back at `generation` or later, and who lags. Raises NotFound."""
        number = self.standing(domain).hosts
        lagging = self._tx.rows(_LAGGARDS, of_domain=domain, wanted=generation)
        laggards = tuple(Laggard(row.name, None if row.host is None else _read_point(row)) for row in lagging)
        return EnforcedState(generation, number, laggards)

    def standing(self, domain: str) -> Standing:
        """Count the domain's hosts at each generation. Raises NotFound."""
        rows = self._tx.rows(_COUNTED, of_domain=domain)
        if not rows:
            self._tx.domain(domain)
        return Standing(
            sum(row.hosts for row in rows), {row.reached: row.hosts for row in rows if row.reached is not None}
        )

    def heard(self) -> tuple[Heard, ...]:
        """Every host of every domain, by domain and name."""
        held = (points.c.state == _ENFORCED) & (points.c.generation >= domains.c.generation)
        found = (
            select(
                hosts.c.domain,
                hosts.c.name,
                case((held, 0), else_=1).label("behind"),
                enforcers.c.id.label("enforcer"),
                enforcers.c.last_seen,
            )
            .join(domains, domains.c.id == hosts.c.domain)
            .outerjoin(points, and_(points.c.domain == hosts.c.domain, points.c.host == hosts.c.name))
            .outerjoin(enforcers, enforcers.c.id == points.c.enforcer)
            .outerjoin(fleet_members, _MEMBER)
            .where(_COUNTS)
            .order_by(hosts.c.domain, hosts.c.name)
        )
        return tuple(
            Heard(
                row.domain,
                row.name,
                bool(row.behind),
                row.enforcer,
                None if row.last_seen is None else from_micros(row.last_seen),
            )
            for row in self._tx.read(found)
        )

    def switches(self, domain: str) -> tuple[HeldRecord, ...]:
        """Return what hosts' switches of the domain may hold, once for all that hold alike.

        Firewalls and edge switches are left out.
        """
        return tuple(_read_held(row) for row in self._tx.rows(_SWITCHES, of_domain=domain))

    def lose_silent(self, silence_s: float) -> tuple[int, ...]:
        """Log enforcers that have been silent for `silence_s` as down; return their ids."""
        since = self._tx.micros - int(silence_s * 1_000_000)
        silent = (enforcers.c.last_seen < since) & enforcers.c.lost.is_(None)
        lose = update(enforcers).where(silent).values(lost=self._tx.micros).returning(enforcers)
        lost = self._tx.write(lose).all()
        for row in lost:
            heard = from_micros(row.last_seen).isoformat()
            self._events.append("enforcer.down", row.domain, {"name": row.name, "id": row.id, "last_seen": heard})
        return tuple(row.id for row in lost)

    def has_silent(self, silence_s: float) -> bool:
        """Whether `lose_silent` would find any: for asking often without writing."""
        since = self._tx.micros - int(silence_s * 1_000_000)
        silent = select(enforcers.c.id).where(enforcers.c.last_seen < since, enforcers.c.lost.is_(None))
        return self._tx.read(silent.limit(1)).first() is not None

    # ------------------------------------------------------------------------------------------------ steps

    def _known_hosts(self, domain: str, names: Set[str]) -> Mapping[str, Row[Any]]:
        """Read some hosts of a domain: one by one where they are few."""
        if len(names) > FEW_HOSTS:
            return {each.name: each for each in self._tx.rows(_HOSTS, of_domain=domain) if each.name in names}
        found = [self._tx.row(_HOST, of_domain=domain, named=name) for name in sorted(names)]
        return {each.name: each for each in found if each is not None}

    def _read_row(self, enforcer: int) -> Row[Any]:
        row = self._tx.row(_ENFORCER, numbered=enforcer)
        if row is None:
            raise NotFound(f"there is no enforcer {enforcer}")
        return row

    def _note_seen(self, row: Row[Any], sequence: int | None) -> None:
        latest = row.sequence if sequence is None else sequence
        self._tx.rows(_SEEN, numbered=row.id, at=self._tx.micros, latest=latest)
        if row.last_seen is None or row.lost is not None:
            self._events.append("enforcer.up", row.domain, {"name": row.name, "id": row.id})

    def _tell_states(self, domain: str, reports: Iterable[PointReport], known: Mapping[str, Row[Any]]) -> None:
        for report in reports:
            before, state = known[report.host].state, report.state.value
            was_bad, is_bad = before in _BAD, state in _BAD
            if (is_bad and before != state) or (was_bad and not is_bad):
                kind = f"host.{state}" if is_bad else "host.recovered"
                why = {"error": clean_text(report.error)} if report.error else {}
                self._events.append(kind, domain, {"host": report.host, "generation": report.generation, **why})

    def _tell_enforced(self, known: Row[Any], domain: str, standing: Standing) -> None:
        """Log a generation that every host has now reached, with its lists."""
        reached, before = standing.reached, known.enforced or 0
        if reached is None or not before < reached <= known.generation_now:
            return
        self._tx.rows(_REACHED, called=domain, reached=reached)
        self._events.append("generation.enforced", domain, {"generation": reached, "hosts": standing.hosts})
        lists = self._tx.rows(_LISTS_REACHED, of_domain=domain, before=before, reached=reached, unwritten=UNWRITTEN)
        newest = {row.id: row for row in lists}
        for tenant, row in newest.items():
            said = {"version": row.version, "generation": row.generation}
            self._events.append("acl.enforced", tenant, said, owner=row)

    def _make_point_row(self, row: Row[Any], report: PointReport) -> dict[str, object]:
        return {
            "domain": row.domain,
            "host": report.host,
            "enforcer": row.id,
            "generation": report.generation,
            "digest": report.digest,
            "state": report.state.value,
            "error": clean_text(report.error),
            "flows": report.flows,
            "reported": self._tx.micros,
        }


def _hosts_of_a_domain() -> Select[Any]:
    """Select a domain's hosts with their points and reporters, and the domain's row."""
    reporter = enforcers.alias("reporter")
    return (
        select(
            hosts.c.name,
            hosts.c.plane,
            points.c.state,
            points.c.generation,
            points.c.digest,
            points.c.error,
            points.c.flows,
            points.c.enforcer,
            reporter.c.lost,
            reporter.c.name.label("reporter"),
            reporter.c.epoch,
            domains.c.enforced,
            domains.c.generation.label("generation_now"),
            case((_COUNTS, literal_column("1")), else_=literal_column("0")).label("counts"),
        )
        .join(domains, domains.c.id == hosts.c.domain)
        .outerjoin(points, and_(points.c.domain == hosts.c.domain, points.c.host == hosts.c.name))
        .outerjoin(reporter, reporter.c.id == points.c.enforcer)
        .outerjoin(fleet_members, _MEMBER)
        .where(hosts.c.domain == bindparam("of_domain"))
    )


_HOSTS = Prepared(_hosts_of_a_domain())
_HOST = Prepared(_hosts_of_a_domain().where(hosts.c.name == bindparam("named")))
FEW_HOSTS = 8
"""So many hosts are asked for one by one, for a domain may have a thousand."""


def _read_held(row: Row[Any]) -> HeldRecord:
    """Return what switches may hold, from a row of `_SWITCHES`."""
    reported = row.reported and from_micros(row.reported)
    return HeldRecord(row.generation, row.digest or None, reported, is_strange=row.generation < row.behind)


def _read_move(before: Row[Any], report: PointReport) -> Move:
    """Return what a host enforced by its row, and enforces by a report."""
    is_enforced = report.state is PointState.ENFORCED
    return before.generation if before.state == _ENFORCED else None, report.generation if is_enforced else None


def _read_point(row: Row[Any]) -> PointRecord:
    report = PointReport(row.host, row.generation, row.digest, PointState(row.state), row.error, row.flows)
    return PointRecord(report, row.enforcer, from_micros(row.reported))

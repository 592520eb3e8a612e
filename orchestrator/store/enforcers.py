"""Enforcement points: enrolment, epochs, reports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select, tuple_, update

from orchestrator.errors import NotFound, Unauthenticated
from orchestrator.policy.model import check_name
from orchestrator.store.keys import digest_of, from_micros, new_secret, to_micros
from orchestrator.store.records import (
    EnforcedState,
    EnforcerRecord,
    Enrolled,
    Laggard,
    PointRecord,
    PointReport,
    PointState,
    Role,
)
from orchestrator.store.schema import domains, enforcers, hosts, invitations, points, tokens
from orchestrator.store.tokens import check_expiry
from orchestrator.store.transaction import Transaction, one_line

_LONGEST_ERROR = 1024


class Enforcers:
    """The enforcers' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def invite(self, domain: str, *, expires: dt.datetime, author: str) -> str:
        """A one-time enrolment token for a domain, seen only now. Raises NotFound, BadInput (already expired)."""
        self._tx.domain(domain)
        check_expiry(self._tx, expires)
        one_line(author, place="author")
        secret = new_secret()
        self._tx.write(delete(invitations).where(invitations.c.expires <= self._tx.micros))
        self._tx.write(
            insert(invitations).values(
                digest=digest_of(secret),
                domain=domain,
                author=author,
                created=self._tx.micros,
                expires=to_micros(expires),
            )
        )
        return secret

    def enrol(self, secret: str, *, name: str, kind: str) -> Enrolled:
        """Use up an enrolment token. An enforcer of the same name in the domain is replaced, its token revoked.

        Raises BadInput, and Unauthenticated when the token is wrong, expired or used up: of two racing enrolments one
        wins, for the test and the mark are one statement.
        """
        check_name(name, "an enforcer's name", place="name")
        check_name(kind, "a kind of enforcer", place="kind")
        columns = invitations.c
        use = (
            update(invitations)
            .where(columns.digest == digest_of(secret), columns.used.is_(None), columns.expires > self._tx.micros)
            .values(used=self._tx.micros)
            .returning(columns.domain)
        )
        domain = self._tx.write(use).scalar_one_or_none()
        if domain is None:
            raise Unauthenticated("the enrolment token is wrong, expired or used up: ask for a new one")
        self._tx.write(delete(enforcers).where(enforcers.c.domain == domain, enforcers.c.name == name))
        new = insert(enforcers).values(
            domain=domain, name=name, kind=kind, epoch=self._epoch(domain), created=self._tx.micros
        )
        enforcer = self._tx.write(new.returning(enforcers.c.id)).scalar_one()
        bearer = new_secret()
        self._tx.write(
            insert(tokens).values(
                digest=digest_of(bearer),
                role=Role.ENFORCER.value,
                enforcer=enforcer,
                description=f"enforcer {name}",
                created=self._tx.micros,
            )
        )
        return Enrolled(self.get(enforcer), bearer)

    def get(self, enforcer: int) -> EnforcerRecord:
        """Raises NotFound."""
        return _record(self._row(enforcer))

    def list(self, domain: str) -> tuple[EnforcerRecord, ...]:
        """The enforcers of a domain by name. Raises NotFound."""
        self._tx.domain(domain)
        rows = self._tx.read(select(enforcers).where(enforcers.c.domain == domain).order_by(enforcers.c.name))
        return tuple(_record(row) for row in rows)

    def new_epoch(self, enforcer: int) -> int:
        """A higher epoch than any in the domain, for an enforcer that starts anew and takes over. Raises NotFound.

        The sequence of its reports may begin again.
        """
        row = self._row(enforcer)
        epoch = self._epoch(row.domain)
        self._tx.write(update(enforcers).where(enforcers.c.id == enforcer).values(epoch=epoch, sequence=None))
        return epoch

    def remove(self, enforcer: int) -> None:
        """Forget an enforcer with its reports and revoke its token. Raises NotFound."""
        self._row(enforcer)
        self._tx.write(delete(enforcers).where(enforcers.c.id == enforcer))

    def report(self, enforcer: int, reports: Sequence[PointReport], *, sequence: int | None = None) -> bool:
        """Store what an enforcer read back. Hosts that the domain does not have are passed over.

        `sequence` grows from report to report of one enforcer; a report that comes late or twice changes nothing, and
        False is returned: its hits must not be recorded either. Raises NotFound.
        """
        row = self._row(enforcer)
        if sequence is not None and row.sequence is not None and sequence <= row.sequence:
            return False
        seen = {"last_seen": self._tx.micros, "sequence": row.sequence if sequence is None else sequence}
        self._tx.write(update(enforcers).where(enforcers.c.id == enforcer).values(**seen))
        known = set(self._tx.read(select(hosts.c.name).where(hosts.c.domain == row.domain)).scalars())
        latest = {report.host: report for report in reports if report.host in known}
        if latest:
            keys = [(row.domain, host) for host in latest]
            self._tx.write(delete(points).where(tuple_(points.c.domain, points.c.host).in_(keys)))
            self._tx.write(insert(points), [self._point(row, report) for report in latest.values()])
        return True

    def points(self, domain: str) -> tuple[PointRecord, ...]:
        """The latest report about each host, by host. Raises NotFound."""
        self._tx.domain(domain)
        rows = self._tx.read(select(points).where(points.c.domain == domain).order_by(points.c.host))
        return tuple(_point_record(row) for row in rows)

    def enforced(self, domain: str, generation: int) -> EnforcedState:
        """Whether every host was read back at `generation` or later, and who lags. Raises NotFound."""
        by_host = {record.report.host: record for record in self.points(domain)}
        names = (
            self._tx.read(select(hosts.c.name).where(hosts.c.domain == domain).order_by(hosts.c.name)).scalars().all()
        )
        lagging = tuple(
            Laggard(name, by_host.get(name)) for name in names if not _enforces(by_host.get(name), generation)
        )
        return EnforcedState(generation, len(names), lagging)

    # ------------------------------------------------------------------------------------------------ steps

    def _row(self, enforcer: int) -> Row[Any]:
        row = self._tx.read(select(enforcers).where(enforcers.c.id == enforcer)).one_or_none()
        if row is None:
            raise NotFound(f"there is no enforcer {enforcer}")
        return row

    def _epoch(self, domain: str) -> int:
        rise = update(domains).where(domains.c.id == domain).values(epoch=domains.c.epoch + 1)
        return int(self._tx.write(rise.returning(domains.c.epoch)).scalar_one())

    def _point(self, row: Row[Any], report: PointReport) -> dict[str, object]:
        error = None
        if report.error is not None:  # a device's own words: keep what every database can keep
            error = "".join(c if c.isprintable() else "?" for c in report.error[:_LONGEST_ERROR])
        return {
            "domain": row.domain,
            "host": report.host,
            "enforcer": row.id,
            "generation": report.generation,
            "digest": report.digest,
            "state": report.state.value,
            "error": error,
            "flows": report.flows,
            "reported": self._tx.micros,
        }


def _enforces(record: PointRecord | None, generation: int) -> bool:
    return record is not None and record.report.state is PointState.ENFORCED and record.report.generation >= generation


def _record(row: Row[Any]) -> EnforcerRecord:
    last_seen = None if row.last_seen is None else from_micros(row.last_seen)
    return EnforcerRecord(row.id, row.domain, row.name, row.kind, row.epoch, from_micros(row.created), last_seen)


def _point_record(row: Row[Any]) -> PointRecord:
    report = PointReport(row.host, row.generation, row.digest, PointState(row.state), row.error, row.flows)
    return PointRecord(report, row.enforcer, from_micros(row.reported))

"""Enforcement points and their epochs.

How they enrol is in `enrolments.py`, what they report in `reports.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, func, select, update

from orchestrator.identity.names import OPENFLOW
from orchestrator.store.points.acceptance import check_epoch
from orchestrator.store.points.enrolments import Enrolments, enforcer_record
from orchestrator.store.points.scope import Scope, hosts_of
from orchestrator.store.schema.core import enforcers, hosts
from orchestrator.store.schema.logs import packet_log_feeds
from orchestrator.wire.points import Enforcer


class Enforcers(Enrolments):
    """The enforcers' repository."""

    def list(self, domain: str) -> tuple[Enforcer, ...]:
        """The enforcers of a domain by name. Raises NotFound."""
        self._tx.domain(domain)
        rows = self._tx.read(select(enforcers).where(enforcers.c.domain == domain).order_by(enforcers.c.name))
        return tuple(enforcer_record(row) for row in rows)

    def new_epoch(self, enforcer: int) -> int:
        """Return a new epoch above all in the domain, for an enforcer that takes over.

        Raises NotFound.

        The sequences of its reports, of packets too, may begin again.
        """
        row = self._row(enforcer)
        epoch = self._epoch(row.domain)
        self._tx.write(update(enforcers).where(enforcers.c.id == enforcer).values(epoch=epoch, sequence=None))
        self._tx.write(update(packet_log_feeds).where(packet_log_feeds.c.enforcer == enforcer).values(number=0))
        return epoch

    def check_epoch(self, enforcer: int, epoch: int | None) -> None:
        """Refuse who speaks as an enforcer of an epoch that is over. Raises Conflict, NotFound."""
        check_epoch(self._row(enforcer), epoch)

    def scope(self, enforcer: int) -> Scope:
        """Return what an enforcer may speak for.

        Raises NotFound.
        """
        return Scope.of(self._row(enforcer))

    def count_hosts(self, enforcer: int) -> int:
        """Return how many hosts an enforcer may report of. Raises NotFound."""
        row = self._row(enforcer)
        named = hosts_of(row.hosts)
        if named is not None or row.kind != OPENFLOW:
            return 1 if named is None else len(named)
        found = self._tx.read(select(func.count()).select_from(hosts).where(hosts.c.domain == row.domain))
        return int(found.scalar_one())

    def check_hosts(self, enforcer: int, named: Iterable[str], *, place: str) -> frozenset[str]:
        """Return the hosts among `named` that the domain has.

        Raises NotFound (enforcer), Forbidden.
        """
        row, wanted = self._row(enforcer), frozenset(named)
        scope = Scope.of(row)
        found = self._tx.read(select(hosts.c.name, hosts.c.plane).where(hosts.c.domain == row.domain))
        known = {host.name: host.plane for host in found if host.name in wanted}
        for name, plane in known.items():
            scope.check(name, plane, place=place)
        return frozenset(known)

    def remove(self, enforcer: int) -> None:
        """Delete an enforcer with its reports, token and certificate.

        Raises NotFound.
        """
        self._row(enforcer)
        self._tx.write(delete(enforcers).where(enforcers.c.id == enforcer))

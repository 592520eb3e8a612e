"""Enforcement points: enrolment and epochs. What they report is in `reports.py`, the other half of the repository."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from orchestrator.errors import Unauthenticated
from orchestrator.policy.model import check_name
from orchestrator.store.keys import digest_of, from_micros, new_secret, to_micros
from orchestrator.store.records import EnforcerRecord, Enrolled, Role
from orchestrator.store.reports import Reports, check_epoch
from orchestrator.store.schema import domains, enforcers, invitations, tokens
from orchestrator.store.tokens import check_expiry
from orchestrator.store.transaction import one_line


class Enforcers(Reports):
    """The enforcers' repository."""

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

    def check_epoch(self, enforcer: int, epoch: int | None) -> None:
        """Refuse who speaks as an enforcer of an epoch that is over. Raises Conflict, NotFound."""
        check_epoch(self._row(enforcer), epoch)

    def remove(self, enforcer: int) -> None:
        """Forget an enforcer with its reports and revoke its token. Raises NotFound."""
        self._row(enforcer)
        self._tx.write(delete(enforcers).where(enforcers.c.id == enforcer))

    # ------------------------------------------------------------------------------------------------ steps

    def _epoch(self, domain: str) -> int:
        rise = update(domains).where(domains.c.id == domain).values(epoch=domains.c.epoch + 1)
        return int(self._tx.write(rise.returning(domains.c.epoch)).scalar_one())


def _record(row: Row[Any]) -> EnforcerRecord:
    last_seen = None if row.last_seen is None else from_micros(row.last_seen)
    return EnforcerRecord(row.id, row.domain, row.name, row.kind, row.epoch, from_micros(row.created), last_seen)

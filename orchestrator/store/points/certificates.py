"""Issued certificates: enforcement points', which identify them, and switches'."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, delete, insert, or_, select, tuple_, update

from orchestrator.errors import BadInput, Conflict, NotFound
from orchestrator.identity.authority import Issued
from orchestrator.identity.names import Subject, Usage
from orchestrator.store.points.pointrecords import CertificateRecord
from orchestrator.store.records import Role
from orchestrator.store.schema.core import tokens
from orchestrator.store.schema.identity import certificates
from orchestrator.store.sql.keys import certificate_digest, from_micros, to_micros
from orchestrator.store.transaction import Transaction

_KEPT = dt.timedelta(days=90)
_MICROSECOND = dt.timedelta(microseconds=1)
_ORDER = (certificates.c.domain, certificates.c.name, certificates.c.issued, certificates.c.serial)


class Certificates:
    """The certificates' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def keep(self, issued: Issued, enforcer: int | None = None) -> CertificateRecord:
        """Store a certificate of an enforcement point.

        Raises Conflict for a key in use.
        """
        columns = certificates.c
        self._tx.write(delete(certificates).where(columns.ends <= to_micros(self._tx.now - _KEPT)))
        if self._tx.read(select(columns.serial).where(columns.key == issued.key)).first() is not None:
            raise Conflict("this key has a certificate already: make a new key", place="csr")
        token = None
        if enforcer is not None:
            known = insert(tokens).values(
                digest=certificate_digest(issued.fingerprint),
                role=Role.ENFORCER.value,
                enforcer=enforcer,
                description=f"certificate of enforcer {issued.subject.name}",
                created=self._tx.micros,
                expires=to_micros(issued.ends),
            )
            token = self._tx.write(known.returning(tokens.c.id)).scalar_one()
        self._tx.write(
            insert(certificates).values(
                serial=issued.serial,
                fingerprint=issued.fingerprint,
                key=issued.key,
                usage=issued.subject.usage.value,
                domain=issued.subject.domain,
                name=issued.subject.name,
                token=token,
                pem=issued.pem,
                issued=self._tx.micros,
                ends=to_micros(issued.ends),
            )
        )
        return self.get(issued.serial)

    def get(self, serial: str) -> CertificateRecord:
        """Return a certificate. Raises NotFound."""
        row = self._tx.read(_select_rows().where(certificates.c.serial == serial)).one_or_none()
        if row is None:
            raise NotFound(f"there is no certificate {serial}")
        return self._read_record(row)

    def of_key(self, key: bytes) -> CertificateRecord | None:
        """The certificate of a key (SHA-256), if it has one that is valid."""
        row = self._tx.read(_select_rows().where(certificates.c.key == key)).one_or_none()
        record = self._read_record(row) if row is not None else None
        return record if record is not None and record.is_valid else None

    def is_of_certificate(self, token: int) -> bool:
        """Whether a token, by its number, is that of a certificate."""
        return self._tx.read(select(certificates.c.serial).where(certificates.c.token == token)).first() is not None

    def list(
        self, domain: str | None = None, *, limit: int | None = None, marker: str | None = None
    ) -> tuple[CertificateRecord, ...]:
        """Certificates by domain, name and time, of one domain or of all.

        Those after the one with the serial `marker`, at most `limit`. Raises BadInput where that one is there no more:
        its place is not known.
        """
        statement = _select_rows().order_by(*_ORDER).limit(limit)
        if domain is not None:
            statement = statement.where(certificates.c.domain == domain)
        if marker is not None:
            last = self._tx.read(select(*_ORDER).where(certificates.c.serial == marker)).one_or_none()
            if last is None:
                raise BadInput(f"'{marker}' is not there any more: begin anew", place="query.marker")
            statement = statement.where(tuple_(*_ORDER) > tuple_(*last))
        return tuple(map(self._read_record, self._tx.read(statement)))

    def ending(self, within: dt.timedelta) -> tuple[CertificateRecord, ...]:
        """Valid certificates that end within a time, and have run three quarters of theirs.

        Those that a newer valid one of the same bearer replaces are left out.
        """
        columns, newer, now = certificates.c, certificates.alias("newer"), self._tx.micros
        replaced = select(newer.c.serial).where(
            newer.c.domain == columns.domain,
            newer.c.name == columns.name,
            newer.c.usage == columns.usage,
            newer.c.revoked.is_(None),
            newer.c.ends > now,
            tuple_(newer.c.issued, newer.c.serial) > tuple_(columns.issued, columns.serial),
            or_(newer.c.token.is_not(None), newer.c.usage == Usage.SWITCH.value),
        )
        found = _select_rows().where(
            columns.revoked.is_(None),
            columns.ends > now,
            columns.ends < now + within // _MICROSECOND,
            4 * (columns.ends - now) < columns.ends - columns.issued,
            ~replaced.exists(),
        )
        return tuple(each for each in map(self._read_record, self._tx.read(found)) if each.is_valid)

    def revoked_switches(self, domain: str) -> tuple[str, ...]:
        """Return a domain's revoked switches' serials that have not ended."""
        columns = certificates.c
        found = select(columns.serial).where(
            columns.domain == domain,
            columns.usage == Usage.SWITCH.value,
            columns.revoked.is_not(None),
            columns.ends > self._tx.micros,
        )
        return tuple(row.serial for row in self._tx.read(found.order_by(columns.serial)))

    def revoke(self, serial: str) -> CertificateRecord:
        """Revoke a certificate at once, if it is valid.

        Raises NotFound.
        """
        if self.get(serial).is_valid:
            self._withdraw_certificates(certificates.c.serial == serial)
        return self.get(serial)

    def revoke_switch(self, subject: Subject) -> None:
        """Make every certificate of a switch invalid, at once."""
        columns = certificates.c
        self._withdraw_certificates(
            and_(
                columns.usage == Usage.SWITCH.value,
                columns.domain == subject.domain,
                columns.name == subject.name,
                columns.revoked.is_(None),
            )
        )

    def revoke_others(self, enforcer: int, but: Iterable[int]) -> None:
        """Revoke an enforcement point's other certificates and tokens, by number of token."""
        others = select(tokens.c.id).where(tokens.c.enforcer == enforcer, tokens.c.id.not_in(tuple(but)))
        self._withdraw_certificates(certificates.c.token.in_(others))
        self._tx.write(delete(tokens).where(tokens.c.id.in_(others)))

    def invalid(self, fingerprints: Iterable[bytes]) -> frozenset[bytes]:
        """Return those of some fingerprints that stand for nobody (any more)."""
        asked = {certificate_digest(each): each for each in fingerprints}
        good = or_(tokens.c.expires.is_(None), tokens.c.expires > self._tx.micros)
        found = self._tx.read(select(tokens.c.digest).where(tokens.c.digest.in_(asked), good))
        return frozenset(asked.values()) - {asked[bytes(row.digest)] for row in found}

    # ------------------------------------------------------------------------------------------------ steps

    def _withdraw_certificates(self, which: ColumnElement[bool]) -> None:
        gone = self._tx.read(select(certificates.c.serial, certificates.c.token).where(which)).all()
        if not gone:
            return
        serials = [row.serial for row in gone]
        self._tx.write(update(certificates).where(certificates.c.serial.in_(serials)).values(revoked=self._tx.micros))
        bearers = [row.token for row in gone if row.token is not None]
        if bearers:
            self._tx.write(delete(tokens).where(tokens.c.id.in_(bearers)))

    def _read_record(self, row: Row[Any]) -> CertificateRecord:
        usage = Usage(row.usage)
        bears = row.token is not None or usage is Usage.SWITCH
        return CertificateRecord(
            serial=row.serial,
            subject=Subject(usage, row.domain, row.name),
            pem=row.pem,
            issued=from_micros(row.issued),
            ends=from_micros(row.ends),
            revoked=None if row.revoked is None else from_micros(row.revoked),
            is_valid=bears and row.revoked is None and row.ends > self._tx.micros,
            enforcer=row.enforcer,
            token=row.token,
        )


def _select_rows() -> Select[Any]:
    return select(certificates, tokens.c.enforcer).outerjoin(tokens, tokens.c.id == certificates.c.token)

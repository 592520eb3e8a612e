"""Bearer tokens. The store keeps their digests; the secret is seen once, by whom it was made for."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, insert, or_, select

from orchestrator.errors import BadInput, NotFound, Unauthenticated
from orchestrator.policy.model import TenantId
from orchestrator.store.principals import Bearer
from orchestrator.store.records import NewToken, Principal, Role, TokenRecord
from orchestrator.store.schema.core import enforcers, tenants, tokens
from orchestrator.store.sql.keys import digest_of, from_micros, new_secret, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, one_line


class Tokens:
    """The tokens' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def create(
        self,
        role: Role,
        *,
        tenant: str | None = None,
        expires: dt.datetime | None = None,
        description: str = "",
    ) -> NewToken:
        """Make a token: MEMBER and READER are of one tenant, ADMIN of none; ENFORCER tokens come from enrolment.

        Raises BadInput, NotFound (tenant).
        """
        if role is Role.ENFORCER:
            raise BadInput("an enforcer gets its token by enrolling", place="role")
        if (role is Role.ADMIN) != (tenant is None):
            raise BadInput(
                f"a token for the role {role.value} {'needs' if tenant is None else 'has no'} tenant", place="tenant"
            )
        one_line(description, place="description")
        if expires is not None:
            check_expiry(self._tx, expires)
        secret = new_secret()
        self._tx.write(delete(tokens).where(tokens.c.expires <= self._tx.micros))
        new = insert(tokens).values(
            digest=digest_of(secret),
            role=role.value,
            tenant=None if tenant is None else self._tx.tenant(tenant).number,
            description=description,
            created=self._tx.micros,
            expires=None if expires is None else to_micros(expires),
        )
        token_id = self._tx.write(new.returning(tokens.c.id)).scalar_one()
        return NewToken(secret, _record(self._tx.read(_rows().where(tokens.c.id == token_id)).one()))

    def check(self, secret: str) -> Principal:
        """Who bears this token. Raises Unauthenticated: unknown, revoked and expired look the same."""
        return self.bearer(digest_of(secret)).principal

    def bearer(self, digest: bytes) -> Bearer:
        """Who bears the token with this digest, or shows that certificate, and until when. Raises Unauthenticated."""
        row = self._tx.row(_BEARER, of_secret=digest, at=self._tx.micros)
        if row is None:
            raise Unauthenticated("the token or the certificate is not valid, or not any more")
        return Bearer(_principal(row), row.expires)

    def list(self, *, tenant: str | None = None) -> tuple[TokenRecord, ...]:
        """Tokens, oldest first, without secrets. Raises NotFound."""
        statement = _rows().order_by(tokens.c.id)
        if tenant is not None:
            statement = statement.where(tokens.c.tenant == self._tx.tenant(tenant).number)
        return tuple(_record(row) for row in self._tx.read(statement))

    def revoke(self, token_id: int) -> None:
        """Raises NotFound."""
        if not self._tx.write(delete(tokens).where(tokens.c.id == token_id)).rowcount:
            raise NotFound(f"there is no token {token_id}")


def check_expiry(tx: Transaction, expires: dt.datetime) -> None:
    """Refuse a time without a zone, or one that has passed. Raises BadInput."""
    if expires.tzinfo is None:
        raise BadInput("a time needs its zone, as in 2030-01-31T12:00:00Z", place="expires")
    if expires <= tx.now:
        raise BadInput(f"{expires.isoformat()} has passed already", place="expires")


def _rows() -> Select[Any]:
    return (
        select(tokens, tenants.c.id.label("tenant_id"), enforcers.c.domain.label("domain_id"))
        .outerjoin(tenants, tenants.c.number == tokens.c.tenant)
        .outerjoin(enforcers, enforcers.c.id == tokens.c.enforcer)
    )


_BEARER = Prepared(
    _rows().where(
        tokens.c.digest == bindparam("of_secret"),
        or_(tokens.c.expires.is_(None), tokens.c.expires > bindparam("at")),
    )
)


def _principal(row: Row[Any]) -> Principal:
    tenant = None if row.tenant_id is None else TenantId(row.tenant_id)
    return Principal(row.id, Role(row.role), tenant, row.domain_id, row.enforcer)


def _record(row: Row[Any]) -> TokenRecord:
    expires = None if row.expires is None else from_micros(row.expires)
    return TokenRecord(row.id, _principal(row), row.description, from_micros(row.created), expires)

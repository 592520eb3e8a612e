"""Bearer tokens.

The store keeps their digests; the secret is seen once, by whom it was made for.

`PrincipalCache` keeps bearers of tokens in memory: checking a token is what every request begins with. It is for a
process that is the only one to take tokens away (SQLite). A commit that takes any away, or may have, empties it, and
what was read before such a commit is not kept after it. When a token expires is kept with it.
"""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, func, insert, or_, select, update

from orchestrator.errors import BadInput, NotFound, TooOften, Unauthenticated
from orchestrator.policy.model import TenantId
from orchestrator.store.records import Bearing, NewToken, Principal, Role, TokenRecord
from orchestrator.store.schema.core import enforcers, tenants, tokens
from orchestrator.store.sql.keys import digest_of, from_micros, new_secret, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, one_line

_MOST = 4096


@dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a token, and until when (microseconds since 1970; None: for good)."""

    principal: Principal
    expires: int | None

    def holds(self, micros: int) -> bool:
        """Whether the token is valid at a time."""
        return self.expires is None or self.expires > micros


class PrincipalCache:
    """The shared memory of tokens, by digest. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bearers: dict[bytes, Bearer] = {}
        self._cleared = 0

    @property
    def cleared(self) -> int:
        """Grows whenever it is emptied: note it before reading the database."""
        return self._cleared

    def get(self, digest: bytes) -> Bearer | None:
        """Return the bearer of the token with this digest, if known.

        The caller must check that it is still valid.
        """
        return self._bearers.get(digest)

    def put(self, digest: bytes, bearer: Bearer, cleared: int) -> None:
        """Keep a bearer, unless the cache was emptied since it was read.

        `cleared` says how often the cache had been emptied when it was read.
        """
        with self._lock:
            if cleared == self._cleared:
                if len(self._bearers) >= _MOST:
                    self._bearers.clear()
                self._bearers[digest] = bearer

    def clear(self) -> None:
        """Forget all bearers: tokens were taken away."""
        with self._lock:
            self._cleared += 1
            self._bearers.clear()


LONGEST_PERSON = 64
"""Characters."""
RENEWED_AFTER = dt.timedelta(days=20)
"""An enforcement point replaces its token after this time, or after two thirds of the token's own if that is less."""
MOST_SUCCESSORS = 32
"""So many good tokens may bear the name of one person of a tenant; more successors are refused."""

_NAME = Prepared(select(tokens.c.description).where(tokens.c.id == bindparam("numbered")))


def name_of_author(tx: Transaction, author: str) -> str:
    """Return the present name of an author such as ``member:3``.

    The name is empty where the token is not known. A token may be revoked after its author wrote something.
    """
    number = author.rpartition(":")[2]
    row = tx.row(_NAME, numbered=int(number)) if number.isdecimal() else None
    return "" if row is None else str(row.description)


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
        person: str = "",
        maker: Bearing | None = None,
    ) -> NewToken:
        """Make a token of a tenant (MEMBER, READER) or of the operator (ADMIN).

        ENFORCER tokens come from enrolment.

        A token lasts as long as it may (`StoreSettings.token_lasts`), or until `expires`, which is not later. `person`
        bears it; the default is its maker. Raises BadInput, NotFound (tenant).
        """
        if role is Role.ENFORCER:
            raise BadInput("an enforcer gets its token by enrolling", place="role")
        if (role is Role.ADMIN) != (tenant is None):
            raise BadInput(
                f"a token for the role {role.value} {'needs a' if tenant is None else 'has no'} tenant", place="tenant"
            )
        one_line(description, place="description")
        number = None if tenant is None else self._tx.tenant(tenant).number
        if person:
            one_line(person, place="person", longest=LONGEST_PERSON)
        made_by = None if maker is None else maker.person
        return self._insert_token(
            role, number, description, self._end_of(expires), Bearing(person or made_by or "", made_by)
        )

    def rotate(
        self, token_id: int, *, overlap: dt.timedelta, expires: dt.datetime | None = None, maker: Bearing | None = None
    ) -> NewToken:
        """Make the successor of a token, for the same bearer.

        The old one ends after an overlap, or at its own end. A successor that is made with a token of its bearer keeps
        the maker: the maker has seen that token's secret, and may be who asks.

        Raises NotFound, TooOften for a person with very many, and BadInput for an overlap that is none and for tokens
        of enforcement points, which enrol.
        """
        if not dt.timedelta() <= overlap <= self._tx.settings.token_lasts:
            raise BadInput(f"{overlap} is not between nothing and a token's time", place="overlap_s")
        row = self._tx.read(select(tokens).where(tokens.c.id == token_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no token {token_id}")
        if row.role == Role.ENFORCER.value:
            raise BadInput("an enforcer gets its token by enrolling", place="role")
        person = _bearing(row).person
        self._check_room(row.tenant, person)
        end = to_micros(self._tx.now + overlap)
        end = end if row.expires is None else min(end, row.expires)
        self._tx.write(update(tokens).where(tokens.c.id == token_id).values(expires=end))
        bearing = _successor_of(_bearing(row), maker)
        return self._insert_token(Role(row.role), row.tenant, row.description, self._end_of(expires), bearing)

    def _check_room(self, tenant: int | None, person: str) -> None:
        """Raise TooOften where as many tokens as may be bear a person's name."""
        mine = tokens.c.person == person, tokens.c.tenant.is_not_distinct_from(tenant)
        good = or_(tokens.c.expires.is_(None), tokens.c.expires > self._tx.micros)
        count = self._tx.read(select(func.count()).select_from(tokens).where(*mine, good)).scalar_one()
        if count >= MOST_SUCCESSORS:
            raise TooOften(f"{count} tokens of '{person}' are good already: have some revoked, or wait until they end")

    def get(self, token_id: int) -> TokenRecord:
        """Return a token without its secret. Raises NotFound."""
        row = self._tx.read(_select_rows().where(tokens.c.id == token_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no token {token_id}")
        return _read_record(row)

    def bearing(self, token_id: int) -> Bearing:
        """The person that bears a token, and who has seen its secret. Raises NotFound."""
        row = self._tx.read(select(tokens).where(tokens.c.id == token_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no token {token_id}")
        return _bearing(row)

    def _end_of(self, expires: dt.datetime | None) -> dt.datetime:
        """Return when a token ends, within the limits. Raises BadInput."""
        latest = self._tx.now + self._tx.settings.token_lasts
        if expires is None:
            return latest
        check_expiry(self._tx, expires)
        if expires > latest:
            days = self._tx.settings.token_lasts / dt.timedelta(days=1)
            raise BadInput(f"a token is good for {days:g} days at most (setting token_days)", place="expires")
        return expires

    def _insert_token(
        self, role: Role, tenant: int | None, description: str, expires: dt.datetime, bearing: Bearing
    ) -> NewToken:
        secret = new_secret()
        self._tx.write(delete(tokens).where(tokens.c.expires <= self._tx.micros))
        new = insert(tokens).values(
            digest=digest_of(secret),
            role=role.value,
            tenant=tenant,
            description=description,
            created=self._tx.micros,
            expires=to_micros(expires),
            person=bearing.person or None,
            maker=bearing.maker,
        )
        token_id = self._tx.write(new.returning(tokens.c.id)).scalar_one()
        return NewToken(secret, _read_record(self._tx.read(_select_rows().where(tokens.c.id == token_id)).one()))

    def check(self, secret: str) -> Principal:
        """Return the bearer of this token. Raises Unauthenticated: unknown, revoked and expired look the same."""
        return self.bearer(digest_of(secret)).principal

    def bearer(self, digest: bytes) -> Bearer:
        """Return the bearer of a token or certificate by its digest, and its expiry.

        Raises Unauthenticated.
        """
        row = self._tx.row(_BEARER, of_secret=digest, at=self._tx.micros)
        if row is None:
            raise Unauthenticated(_NOT_VALID)
        return Bearer(_read_principal(row), row.expires)

    def require(self, token_id: int) -> None:
        """Raise Unauthenticated for a token or certificate that was revoked, or has ended."""
        if self._tx.row(_HELD, token=token_id, at=self._tx.micros) is None:
            raise Unauthenticated(_NOT_VALID)

    def list(self, *, tenant: str | None = None, limit: int | None = None, marker: int = 0) -> tuple[TokenRecord, ...]:
        """Tokens, oldest first, those after `marker`, at most `limit`, without secrets. Raises NotFound."""
        statement = _select_rows().where(tokens.c.id > marker).order_by(tokens.c.id).limit(limit)
        if tenant is not None:
            statement = statement.where(tokens.c.tenant == self._tx.tenant(tenant).number)
        return tuple(_read_record(row) for row in self._tx.read(statement))

    def revoke(self, token_id: int) -> None:
        """Make a token invalid. Raises NotFound."""
        if not self._tx.write(delete(tokens).where(tokens.c.id == token_id)).rowcount:
            raise NotFound(f"there is no token {token_id}")


def is_due(record: TokenRecord, now: dt.datetime) -> bool:
    """Whether an enforcement point is to replace its token now; one without an end is."""
    if record.expires is None:
        return True
    return now >= record.created + min(RENEWED_AFTER, (record.expires - record.created) * 2 / 3)


def check_expiry(tx: Transaction, expires: dt.datetime) -> None:
    """Refuse a time without a zone, or one that has passed. Raises BadInput."""
    if expires.tzinfo is None:
        raise BadInput("a time needs its zone, as in 2030-01-31T12:00:00Z", place="expires")
    if expires <= tx.now:
        raise BadInput(f"{expires.isoformat()} has passed already", place="expires")


def _select_rows() -> Select[Any]:
    return (
        select(tokens, tenants.c.id.label("tenant_id"), enforcers.c.domain.label("domain_id"))
        .outerjoin(tenants, tenants.c.number == tokens.c.tenant)
        .outerjoin(enforcers, enforcers.c.id == tokens.c.enforcer)
    )


_NOT_VALID = "the token or the certificate is not valid, or not any more"
_NOT_ENDED = or_(tokens.c.expires.is_(None), tokens.c.expires > bindparam("at"))
_BEARER = Prepared(_select_rows().where(tokens.c.digest == bindparam("of_secret"), _NOT_ENDED))
_HELD = Prepared(select(tokens.c.id).where(tokens.c.id == bindparam("token"), _NOT_ENDED))


def _bearing(row: Row[Any]) -> Bearing:
    """Read a token's bearing; one without a person is its own person."""
    return Bearing(row.person or f"{row.role}:{row.id}", row.maker)


def _successor_of(old: Bearing, maker: Bearing | None) -> Bearing:
    """Return who bears a token's successor, and who may have seen its secret."""
    if maker is None or maker.person == old.person:
        kept = None if maker is None else maker.maker
        return Bearing(old.person, kept or old.maker)
    return Bearing(old.person, maker.person)


def _read_principal(row: Row[Any]) -> Principal:
    tenant = None if row.tenant_id is None else TenantId(row.tenant_id)
    return Principal(row.id, Role(row.role), tenant, row.domain_id, row.enforcer, description=row.description)


def _read_record(row: Row[Any]) -> TokenRecord:
    expires = None if row.expires is None else from_micros(row.expires)
    return TokenRecord(row.id, _read_principal(row), row.description, from_micros(row.created), expires, _bearing(row))

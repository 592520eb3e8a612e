"""The packet log: the newest packets of each tenant's logging rules.

An enforcement point's reports bear numbers that grow within its epoch; one whose number was taken already changes
nothing, so it may be sent until it is answered. Records are bounded per tenant, so that nobody's flood takes anybody
else's records away.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from sqlalchemy import Row, delete, func, insert, select

from orchestrator.errors import Missing
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.model import Action, Direction, Packet
from orchestrator.program.sightings import packet_from_json, packet_to_json
from orchestrator.store.schema.core import enforcers, tenants
from orchestrator.store.schema.logs import log_limits, packet_log, packet_log_feeds
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class LoggedPacket:
    """A record. `tenant` is None where an operator's rule decided; `direction` is None there too."""

    time: dt.datetime
    tenant: str | None
    rule: str
    action: Action
    direction: Direction | None
    host: str
    packet: Packet
    length: int
    id: int = 0


class PacketLog:
    """The packet log's repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    @property
    def kept(self) -> int:
        """So many records are kept of each tenant."""
        return self._tx.settings.packets_kept

    def limit(self, domain: str) -> LogLimit:
        """How much of each tenant a switch of the domain reports. Raises NotFound."""
        self._tx.domain(domain)
        return limit_of(self._tx, domain)

    def set_limit(self, domain: str, limit: LogLimit) -> bool:
        """Set that; whether it was another one. Moves the domain's generation. Raises NotFound."""
        if self.limit(domain) == limit:
            return False
        values = {"rate": limit.rate, "burst": limit.burst}
        row = self._tx.upsert(log_limits).values({"domain": domain, **values})
        self._tx.write(row.on_conflict_do_update(index_elements=["domain"], set_=values))
        self._tx.bump(domain)
        return True

    def begin(self, enforcer: int, number: int, lost: int) -> bool:
        """Take note of a report; False where it was taken already."""
        feed = self._tx.read(select(packet_log_feeds).where(packet_log_feeds.c.enforcer == enforcer)).one_or_none()
        if feed is not None and number <= feed.number:
            return False
        values = {"number": number, "lost": lost + (feed.lost if feed is not None else 0)}
        row = self._tx.upsert(packet_log_feeds).values({"enforcer": enforcer, **values})
        self._tx.write(row.on_conflict_do_update(index_elements=["enforcer"], set_=values))
        return True

    def append(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Store records, keeping each tenant's newest only.

        Raises NotFound for a tenant that is no more.
        """
        if not records:
            return
        numbers = {name: self._tx.tenant(name).number for each in records if (name := each.tenant) is not None}
        rows = [
            {
                "domain": domain,
                "tenant": None if each.tenant is None else numbers[each.tenant],
                "at": round(each.time.timestamp() * 1e6),
                "host": each.host,
                "rule": each.rule,
                "action": each.action.value,
                "body": self._seal(domain, each),
            }
            for each in records
        ]
        self._tx.write(insert(packet_log), rows)
        for number in {numbers.get(each.tenant or "") for each in records}:
            self._forget_old(domain, number)

    def of_tenant(self, tenant: str, **asked: Any) -> Sequence[LoggedPacket]:
        """Records of a tenant; for what may be asked see `_list_records`. Raises NotFound."""
        return self._list_records(packet_log.c.tenant == self._tx.tenant(tenant).number, **asked)

    def of_domain(self, domain: str, **asked: Any) -> Sequence[LoggedPacket]:
        """Records of a domain, the operator's rules included. Raises NotFound."""
        self._tx.domain(domain)
        return self._list_records(packet_log.c.domain == domain, **asked)

    def lost(self, domain: str) -> int:
        """How many packets enforcement points of the domain saw and could not tell of."""
        owned = select(enforcers.c.id).where(enforcers.c.domain == domain)
        query = select(func.sum(packet_log_feeds.c.lost)).where(packet_log_feeds.c.enforcer.in_(owned))
        return int(self._tx.read(query).scalar_one() or 0)

    def _list_records(
        self, mine: Any, *, rule: str | None = None, action: Action | None = None, after: int | None, limit: int
    ) -> Sequence[LoggedPacket]:
        """The newest `limit` records, or with `after` the first ones after that id; oldest first."""
        statement = select(packet_log, tenants.c.id.label("owner"))
        statement = statement.join(tenants, tenants.c.number == packet_log.c.tenant, isouter=True).where(mine)
        if rule is not None:
            statement = statement.where(packet_log.c.rule == rule)
        if action is not None:
            statement = statement.where(packet_log.c.action == action.value)
        if after is not None:
            statement = statement.where(packet_log.c.id > after).order_by(packet_log.c.id)
            return [self._record(row) for row in self._tx.read(statement.limit(limit))]
        newest = self._tx.read(statement.order_by(packet_log.c.id.desc()).limit(limit)).all()
        return [self._record(row) for row in reversed(newest)]

    def _seal(self, domain: str, record: LoggedPacket) -> str:
        """The headers of a record as they are kept: encrypted where there is a key."""
        text = orjson.dumps(_write_body(record))
        key = self._tx.settings.packets_key
        return text.decode() if key is None else seal(key, domain, text)

    def _record(self, row: Row[Any]) -> LoggedPacket:
        """The record of a row.

        Raises Missing for headers under a key that is not this one.
        """
        body = orjson.loads(open_headers(self._tx.settings.packets_key, row.domain, row.body))
        direction = Direction(body["direction"]) if "direction" in body else None
        return LoggedPacket(
            from_micros(row.at), row.owner, row.rule, Action(row.action), direction, row.host, packet_from_json(body),
            body["octets"], row.id,
        )  # fmt: skip

    def _forget_old(self, domain: str, tenant: int | None) -> None:
        mine = packet_log.c.tenant == tenant if tenant is not None else packet_log.c.tenant.is_(None)
        mine &= packet_log.c.domain == domain
        kept = select(packet_log.c.id).where(mine).order_by(packet_log.c.id.desc())
        oldest = self._tx.read(kept.offset(self._tx.settings.packets_kept).limit(1)).scalar_one_or_none()
        if oldest is not None:
            self._tx.write(delete(packet_log).where(mine, packet_log.c.id <= oldest))


def limit_of(tx: Transaction, domain: str) -> LogLimit:
    """How much of each tenant a switch of a domain reports."""
    row = tx.read(select(log_limits).where(log_limits.c.domain == domain)).one_or_none()
    return USUAL if row is None else LogLimit(row.rate, row.burst)


def _write_body(record: LoggedPacket) -> Mapping[str, Any]:
    direction = {"direction": record.direction.value} if record.direction is not None else {}
    return {**packet_to_json(record.packet), "octets": record.length, **direction}


# ---- headers at rest

_SEALED = "sealed:"
_NONCE_BYTES = 12


def seal(key: bytes, domain: str, text: bytes) -> str:
    """Encrypt headers for a domain (ChaCha20-Poly1305, a random nonce)."""
    nonce = os.urandom(_NONCE_BYTES)
    return _SEALED + base64.b64encode(nonce + ChaCha20Poly1305(key).encrypt(nonce, text, domain.encode())).decode()


def open_headers(key: bytes | None, domain: str, kept: str) -> bytes:
    """Return headers as they were, also those that were kept before there was a key.

    Raises Missing.
    """
    if not kept.startswith(_SEALED):
        return kept.encode()
    if key is None:
        raise Missing("packets were recorded under a key that this service does not have", place="packet_log_key")
    try:
        sealed = base64.b64decode(kept.removeprefix(_SEALED), validate=True)
        return ChaCha20Poly1305(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], domain.encode())
    except (InvalidTag, ValueError):  # ValueError: cut short, or not base64 any more
        raise Missing("packets were recorded under another key, or were changed", place="packet_log_key") from None

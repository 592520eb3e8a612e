"""Answers kept for idempotency keys, so that a POST sent twice is carried out once."""

from __future__ import annotations

import re

import orjson
from sqlalchemy import delete, insert, not_, select, tuple_

from orchestrator.errors import BadInput, Conflict, TooOften
from orchestrator.store.records import Reply
from orchestrator.store.schema.core import replies
from orchestrator.store.transaction import Transaction

_KEY = re.compile(r"[!-~]{1,255}\Z")
_MICROS_PER_HOUR = 3_600_000_000
MOST_KEPT = 10_000
"""Answers of one token. They are kept for a day; forgotten earlier, what is repeated would be done twice."""


class Replies:
    """The kept answers' repository.

    Use it in the unit that makes the change, so that both are there or neither.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def find(self, token_id: int, key: str, request: bytes) -> Reply | None:
        """Return the earlier answer to an idempotency key, if any.

        `request` is a digest of the request (method, path, body). Raises Conflict when the key was used for another
        request, BadInput when it cannot be a key.
        """
        if not _KEY.match(key):
            raise BadInput("a key is 1 to 255 visible ASCII characters", place="Idempotency-Key")
        mine = (replies.c.token == token_id) & (replies.c.key == key) & (replies.c.created > self._find_oldest())
        row = self._tx.read(select(replies).where(mine)).one_or_none()
        if row is None:
            return None
        if row.request != request:
            raise _make_conflict()
        return Reply(row.status, orjson.loads(row.headers), row.body)

    def keep(self, token_id: int, key: str, request: bytes, reply: Reply) -> None:
        """Keep an answer for `replies_kept_h` hours, and forget those older.

        Raises TooOften when as many as can be are kept for the token, and Conflict as `find` does.
        """
        self._tx.log(self._forget)  # at the end: those rows are everybody's
        mine, is_old = replies.c.token == token_id, replies.c.created <= self._find_oldest()
        self._tx.write(delete(replies).where(mine, replies.c.key == key, is_old))
        kept = select(replies.c.created).where(mine, not_(is_old))
        if self._tx.read(kept.offset(MOST_KEPT - 1).limit(1)).first() is not None:
            raise TooOften(
                f"{MOST_KEPT} answers are kept for this token: repeat with keys that are used already, ask without a "
                f"key, or wait until the oldest is {self._tx.settings.replies_kept_h:g} hours old",
                place="Idempotency-Key",
            )
        row = {
            "token": token_id,
            "key": key,
            "request": request,
            "status": reply.status,
            "headers": orjson.dumps(dict(reply.headers)).decode(),
            "body": reply.body,
            "created": self._tx.micros,
        }
        try:
            self._tx.write(insert(replies).values(row))
        except Conflict:  # a request in another domain used it meanwhile
            raise _make_conflict() from None

    def _forget(self) -> None:
        """Forget old answers of all tokens, but for those that another transaction holds.

        That one holds a key that it uses again, and waits for the log, which this one has: both would wait for ever.
        """
        old = select(replies.c.token, replies.c.key).where(replies.c.created <= self._find_oldest())
        key = tuple_(replies.c.token, replies.c.key)
        self._tx.write(delete(replies).where(key.in_(old.with_for_update(skip_locked=True))))

    def _find_oldest(self) -> int:
        return self._tx.micros - int(self._tx.settings.replies_kept_h * _MICROS_PER_HOUR)


def _make_conflict() -> Conflict:
    return Conflict("the key was used for another request: take a new one", place="Idempotency-Key")

"""The journal: what the service is still to be told, in Neutron's own database.

    API worker ── one transaction ──▶ port's rows + journal row ── committed ──▶ worker: reads the port as it is now,
                                                                                 tells the service, deletes the row

A row names a port or a project and nothing of what became of it. It is written in the transaction of the change, so
neither exists without the other. It is worked off by reading Neutron's database as it is then. So rows may be done
twice, late, or by several servers at once, and the service ends at the newest state all the same.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from neutron_lib.db import model_base

PORT, PROJECT = "port", "project"
_LONGEST_DELAY_S = 60.0
_LONGEST_ERROR = 1000
_AT_ONCE = dt.datetime(2000, 1, 1)  # databases round to seconds: now would be later for some


class JournalRow(model_base.BASEV2):
    """Something of which the service is to hear. `error` is why it did not take it when it was last told."""

    __tablename__ = "aclflow_journal"

    id = sa.Column(sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True)
    kind = sa.Column(sa.String(16), nullable=False)
    resource = sa.Column(sa.String(255), nullable=False, index=True)
    attempts = sa.Column(sa.Integer, nullable=False, default=0, server_default="0")
    due = sa.Column(sa.DateTime, nullable=False)
    error = sa.Column(sa.String(_LONGEST_ERROR))


@dataclass(frozen=True)
class Task:
    """All rows of one port or project. `newest` is the newest row that was there when the task was read."""

    kind: str
    resource: str
    newest: int
    attempts: int


def note(session: Any, kind: str, resource: str) -> None:
    """Write that the service is to hear of a port or a project, in the session's transaction."""
    session.add(JournalRow(kind=kind, resource=resource, attempts=0, due=_AT_ONCE))


def due_tasks(session: Any, most: int) -> list[Task]:
    """Return what is due, the oldest first; a resource that waits after a refusal is due again at a new change."""
    newest = sa.func.max(JournalRow.id)
    attempts, due = sa.func.min(JournalRow.attempts), sa.func.min(JournalRow.due)
    columns = (JournalRow.kind, JournalRow.resource)
    rows = session.query(*columns, newest, attempts).group_by(*columns).having(due <= _now())
    return [Task(*row) for row in rows.order_by(sa.func.min(JournalRow.id)).limit(most)]


def pending_ports(session: Any) -> set[str]:
    """Return the ports of which the service does not know everything yet."""
    return {row.resource for row in session.query(JournalRow.resource).filter(JournalRow.kind == PORT).distinct()}


def finish(session: Any, task: Task) -> None:
    """Delete the rows of a task, but none that came while it was done."""
    _rows(session, task).delete(synchronize_session=False)


def postpone(session: Any, task: Task, error: str) -> None:
    """Keep the rows of a task that was refused, and do it again later."""
    delay = min(_LONGEST_DELAY_S, 0.5 * 2 ** min(task.attempts, 10))
    changes = {
        "attempts": task.attempts + 1,
        "due": _now() + dt.timedelta(seconds=delay),
        "error": error[:_LONGEST_ERROR],
    }
    _rows(session, task).update(changes, synchronize_session=False)


def _rows(session: Any, task: Task) -> Any:
    mine = (JournalRow.kind == task.kind, JournalRow.resource == task.resource, JournalRow.id <= task.newest)
    return session.query(JournalRow).filter(*mine)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc).replace(tzinfo=None)  # noqa: UP017  # Python 3.9 is supported

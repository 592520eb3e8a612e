"""Store counts as columns: totals in chunks of cookies, history at falling resolution.

It is also kept who counts which host, and how far. Sums go on from where they were. The values that devices had counted
by the last report are not kept cookie by cookie any more, so packets between that report and the first of the new kind
are not counted.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np
import sqlalchemy as sa
from alembic import op

from orchestrator.program.counts import sum_rows

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.BigInteger()

_NUMBER, _KIND = (1 << 40) - 1, 0xF << 48
_OF_RULES, _OF_OPERATOR_RULES = 1 << 48, 4 << 48
_MARK = 0xAC << 56
_CHUNK_BITS = 16
_MARKS = ("latest", "minutes_until", "hours_until", "moments_since", "minutes_since", "hours_since")


def upgrade() -> None:
    """Make the tables, move the sums, drop the old ones."""
    _add_feeds()
    _add_history()
    _move_sums()
    op.drop_table("hit_baselines")
    op.drop_table("hits")


def _add_feeds() -> None:
    of_host = ["domain", "host"], ["hosts.domain", "hosts.name"]
    op.create_table(
        "hit_feeds",
        sa.Column("domain", _NAME, primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("epoch", _COUNT, nullable=False),
        sa.Column("sequence", _COUNT, nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("heard", _TIME, nullable=False),
        sa.ForeignKeyConstraint(*of_host, ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hit_bookmarks",
        sa.Column("domain", _NAME, primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("sequence", _COUNT, primary_key=True),
        sa.Column("chunk", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(*of_host, ondelete="CASCADE"),
    )
    op.create_table(
        "hit_losses",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
        sa.Column("host", _NAME, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("entries", _COUNT, nullable=False),
        sa.Column("within_ms", _COUNT, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("hit_losses_by_time", "hit_losses", ["domain", "at"])


def _add_history() -> None:
    op.create_table(
        "hit_totals",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("chunk", _COUNT, primary_key=True),
        sa.Column("counts", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "hit_history",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("resolution", _COUNT, primary_key=True),
        sa.Column("start", _TIME, primary_key=True),
        sa.Column("size", _COUNT, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "hit_marks",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        *(sa.Column(name, _TIME, nullable=False) for name in _MARKS),
        sqlite_with_rowid=False,
    )


def _move_sums() -> None:
    """Move the sums into columns in chunks, by domain.

    The domain is that of the rule, the operator rule or the tenant that a cookie belongs to.
    """
    connection = op.get_bind()
    query = "SELECT r.number, t.domain FROM acl_rules r JOIN tenants t ON t.number = r.tenant"
    of_rule = _domains(query)
    of_operator = _domains("SELECT number, domain FROM operator_rules")
    of_tenant = _domains("SELECT number, domain FROM tenants")
    by_kind = {_OF_RULES: of_rule, _OF_OPERATOR_RULES: of_operator}
    rows: defaultdict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
    for row in connection.execute(sa.text("SELECT cookie, packets, bytes, resets, last_hit FROM hits")):
        domain = by_kind.get(row.cookie & _KIND, of_tenant).get(row.cookie & _NUMBER)
        if domain is not None:
            counted = row.packets, row.bytes, row.resets, row.last_hit or 0
            rows[domain, row.cookie >> _CHUNK_BITS].append((row.cookie | _MARK, *counted))
    for (domain, chunk), counts in rows.items():
        columns = list(zip(*counts, strict=True))
        data = sum_rows(_to_unsigned(columns[0]), *map(_to_signed, columns[1:])).to_bytes()
        statement = "INSERT INTO hit_totals (domain, chunk, counts) VALUES (:domain, :chunk, :counts)"
        connection.execute(sa.text(statement), {"domain": domain, "chunk": chunk, "counts": data})
    marks = sa.table("hit_marks", sa.column("domain"), *(sa.column(name) for name in _MARKS))
    now = int(time.time() * 1e6)
    for domain in {domain for domain, _ in rows}:
        connection.execute(sa.insert(marks).values(domain=domain, **dict.fromkeys(_MARKS, now)))


def _domains(query: str) -> dict[int, str]:
    """The domain by number, from a query for both."""
    return {number: domain for number, domain in op.get_bind().execute(sa.text(query))}  # noqa: C416  # rows are no pairs


def _to_unsigned(column: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(column, np.uint64)


def _to_signed(column: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(column, np.int64)

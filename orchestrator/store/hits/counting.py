"""Counts on their way in: who counts which host, and each report once.

A host is counted by one enforcement point at a time. It claims the host with its epoch and gets the bookmark: how far
the counting before it came (`enforce/bookmark.py`; only bytes here). From then on each report bears the next
number and comes with the next piece of the bookmark, and both are kept in one transaction with the sums. A report that
was taken already changes nothing, one of somebody who was replaced, or with a number missing before it, is refused:
whoever sent it claims the host again and goes on from the bookmark. So nothing is counted twice or left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Row, delete, insert, select, update

from orchestrator.compile.cookies import MARK, NO_ROOM
from orchestrator.errors import Conflict, NotFound
from orchestrator.program.countframes import CountClaim, CountFrame, Note
from orchestrator.program.counts import Counts, join_counts
from orchestrator.store.hits.history import SECOND, HitHistory
from orchestrator.store.schema.core import hosts
from orchestrator.store.schema.hits import hit_bookmarks, hit_feeds, hit_losses
from orchestrator.store.transaction import Transaction

CLAIMED = "claimed"
"""The kind of a gap in counting: somebody began to count a host, or went on where another one had stopped."""
_NO_ROOM = np.array([*NO_ROOM.values()], np.uint64)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of storing reports of counters.

    `refused`: hosts that others count now. `unknown`: rows of foreign cookies. `without_room`: packets that found no
    room, by the host or firewall that could not remember the connections that they would have opened.
    """

    refused: tuple[str, ...]
    unknown: int
    without_room: Mapping[str, int]


class Counting:
    """The repository of reports of counts."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def claim(self, domain: str, host: str, epoch: int) -> CountClaim:
        """Become the enforcer that counts a host.

        Raises NotFound (host), Conflict for an epoch that is over.
        """
        feed = self._feed(domain, host)
        if feed is None:
            self._tx.write(
                insert(hit_feeds).values(
                    domain=domain, host=host, epoch=epoch, sequence=0, since=self._tx.micros, heard=self._tx.micros
                )
            )
            return CountClaim(0, 0.0, None)
        if epoch < feed.epoch:
            raise Conflict(f"the host is counted by a later enforcement point, of epoch {feed.epoch}")
        silent_s = max(0.0, (self._tx.micros - feed.heard) / SECOND)
        self._tx.write(_match_host(update(hit_feeds), domain, host).values(epoch=epoch))
        self._keep_loss(domain, host, CLAIMED, 0, silent_s)
        chunks = _match_host(select(hit_bookmarks.c.chunk), domain, host, hit_bookmarks).order_by(
            hit_bookmarks.c.sequence
        )
        known = tuple(self._tx.read(chunks).scalars())
        return CountClaim(feed.sequence, silent_s, known if feed.sequence else None)

    def take(self, domain: str, epoch: int, frames: Iterable[CountFrame]) -> Taken:
        """Add reports of hosts to the sums, each once.

        Hosts that the domain does not have are refused.
        """
        counted: list[Counts] = []
        refused: list[str] = []
        unknown = 0
        without_room: dict[str, int] = {}
        for frame in frames:
            feed = self._feed_or_none(domain, frame.host)
            if feed is None or feed.epoch != epoch or frame.sequence > feed.sequence + 1:
                refused.append(frame.host)
            elif frame.sequence == feed.sequence + 1:
                ours = _ours(frame.counts)
                unknown += len(frame.counts) - len(ours)
                counted.append(ours)
                packets = int(ours.packets[np.isin(ours.cookie, _NO_ROOM)].sum())
                without_room |= {frame.host: packets} if packets else {}
                self._keep(domain, frame)
        if any(map(len, counted)):
            HitHistory(self._tx, domain).append(join_counts(counted))
        return Taken(tuple(refused), unknown, without_room)

    def _keep(self, domain: str, frame: CountFrame) -> None:
        """Move a host's feed and its bookmark on."""
        moved = {"sequence": frame.sequence, "heard": self._tx.micros}
        self._tx.write(_match_host(update(hit_feeds), domain, frame.host).values(**moved))
        if frame.whole:
            self._tx.write(_match_host(delete(hit_bookmarks), domain, frame.host, hit_bookmarks))
        self._tx.write(
            insert(hit_bookmarks).values(domain=domain, host=frame.host, sequence=frame.sequence, chunk=frame.chunk)
        )
        for note in frame.notes:
            self._keep_note(domain, frame.host, note)

    def _keep_note(self, domain: str, host: str, note: Note) -> None:
        self._keep_loss(domain, host, note.loss.value, note.entries, note.within_s)

    def _keep_loss(self, domain: str, host: str, kind: str, entries: int, within_s: float) -> None:
        row = {"domain": domain, "host": host, "kind": kind, "entries": entries, "within_ms": int(within_s * 1000)}
        new = self._tx.write(insert(hit_losses).values(at=self._tx.micros, **row).returning(hit_losses.c.id))
        oldest = int(new.scalar_one()) - self._tx.settings.history.losses_kept
        self._tx.write(delete(hit_losses).where(hit_losses.c.id <= oldest))

    def _feed(self, domain: str, host: str) -> Row[Any] | None:
        """Return the row of a host's reports.

        Raises NotFound for a host that the domain does not have.
        """
        known = select(hosts.c.name).where(hosts.c.domain == domain, hosts.c.name == host)
        if self._tx.read(known).first() is None:
            raise NotFound(f"the domain has no host '{host}'")
        return self._feed_or_none(domain, host)

    def _feed_or_none(self, domain: str, host: str) -> Row[Any] | None:
        return self._tx.read(_match_host(select(hit_feeds), domain, host)).one_or_none()


def _match_host(statement: Any, domain: str, host: str, table: Any = hit_feeds) -> Any:
    return statement.where(table.c.domain == domain, table.c.host == host)


def _ours(counts: Counts) -> Counts:
    """The rows whose cookies are of ours."""
    ours = counts.cookie >> np.uint64(56) == MARK
    return counts if ours.all() else counts.take(ours)

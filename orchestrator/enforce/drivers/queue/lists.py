"""The lists of a firewall in user space, and their verdicts on packets.

    packets ──▶ operator's rows ── none ──▶ senders' rows ── permit, or none ──▶ receivers' rows ──▶ verdict
                     │                            │                                   │
                     └──── each row that was found counts the packet ─────────────────┘

As the oracle says: an operator's row decides alone; else the sender's list must permit the packet and the receiver's,
too, and a packet of neither is dropped. Packets that could not be read are dropped, and no row counts them. Of
those that a limited row permits so many a second pass, and the others are dropped; the row counts them all.

`Lists` is a value. A change makes other lists beside it, and one reference changes; a batch that has begun is judged by
the lists it began with, wholly.

Buckets of tokens limit each tenant's packets a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32
from orchestrator.classify.overlay import NONE, MakeSearch, Overlaid, Placed
from orchestrator.classify.packets import Packets, Unread
from orchestrator.classify.search import Search
from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.filterlists import Stage
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.compile.filters.queuerows import QueueRow
from orchestrator.enforce.driver import Stamp
from orchestrator.policy.addresses import Family
from orchestrator.policy.loglimit import LogLimit
from orchestrator.program.program import Tier


@dataclass(slots=True)
class _Bucket:
    """Tokens that were there at a time."""

    tokens: float
    at_s: float


class Buckets:
    """One bucket a tenant, by its number. Workers share them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}

    def take(self, tenant: int, wanted: int, *, rate: int, burst: int) -> int:
        """Take tokens of a tenant's bucket; return how many there were of those wanted.

        It fills by `rate` a second up to `burst`.
        """
        with self._turn:
            now_s = self._clock()
            bucket = self._buckets.setdefault(tenant, _Bucket(burst, now_s))
            bucket.tokens = min(burst, bucket.tokens + rate * (now_s - bucket.at_s))
            bucket.at_s = now_s
            taken = min(wanted, int(bucket.tokens))
            bucket.tokens -= taken
            return taken


Bools = npt.NDArray[np.bool_]
Place = tuple[Family, Stage]
"""Which rows are searched together."""

_PLACES: tuple[Place, ...] = tuple((family, stage) for family in Family for stage in Stage)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The result of a batch: whether each packet passes, and the rows that count it."""

    permitted: Bools
    counted: tuple[tuple[I32, npt.NDArray[np.intp]], ...]
    """Numbers of rows, and the packet that each of them counts."""
    unread: int
    """Packets that could not be read."""


class Logged(NamedTuple):
    """A row whose packets are reported: under which cookie, in whose measure, and that measure."""

    cookie: int
    tenant: int
    limit: LogLimit


class Limited(NamedTuple):
    """A row that permits so many packets of a tenant a second."""

    tenant: int
    rate: int


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Rows of both IP versions, and the program that they are of."""

    rows: Mapping[Place, Overlaid]
    permits: Bools
    """Whether each row does, by number; the last place stands for no row, which does not."""
    stamp: Stamp | None
    logs: Mapping[int, Logged] = field(default_factory=dict)
    """Rows whose packets are reported, by number."""
    limits: Mapping[int, Limited] = field(default_factory=dict)
    """Rows that are limited, by number."""
    serial: int = 0
    """Grows with every change; lists that were built anew keep it, for they decide alike."""

    @classmethod
    def empty(cls) -> Lists:
        """No rows: everything is dropped."""
        rows = {place: Overlaid.of(place[0], ()) for place in _PLACES}
        return cls(MappingProxyType(rows), np.zeros(1, np.bool_), None)

    @property
    def changed_rows(self) -> int:
        """How many rows are not as they were built."""
        return sum(each.changed_rows for each in self.rows.values())

    def exchange_rows(
        self, removed: Mapping[int, QueueRow], added: Mapping[int, QueueRow], numbers: int, stamp: Stamp
    ) -> Lists:
        """Lists without some rows, and with others, of another program.

        There are `numbers` numbers so far.
        """
        permits = np.zeros(numbers + 1, np.bool_)
        permits[: len(self.permits) - 1] = self.permits[:-1]
        permits[list(added)] = [row.permit for row in added.values()]
        logs = {number: logged for number, logged in self.logs.items() if number not in removed}
        logs |= {number: logged for number, row in added.items() if (logged := _log_settings(row)) is not None}
        limits = {number: limited for number, limited in self.limits.items() if number not in removed}
        limits |= {number: Limited(row.tenant, row.limit) for number, row in added.items() if row.limit is not None}
        rows = dict(self.rows)
        for place, (gone, new) in _by_place(removed, added).items():
            rows[place] = rows[place].exchange_rows(gone, new)
        return Lists(
            MappingProxyType(rows), permits, stamp, MappingProxyType(logs), MappingProxyType(limits), self.serial + 1
        )

    def rebuilt(self, searching: MakeSearch = Search) -> Lists:
        """Build the searches of these lists anew."""
        rows = {place: each.rebuilt(searching) for place, each in self.rows.items()}
        return replace(self, rows=MappingProxyType(rows))

    def carried_over(self, since: Lists, rebuilt: Lists) -> Lists:
        """Apply to `rebuilt`, made from `since`, the changes made since then."""
        rows = {place: each.carried_over(since.rows[place], rebuilt.rows[place]) for place, each in self.rows.items()}
        return replace(self, rows=MappingProxyType(rows))

    def judge(self, packets: Packets) -> Judged:
        """Decide packets."""
        kinds = packets["family"], packets["unread"]
        if len(packets) and all((kind == kind[0]).all() for kind in kinds) and kinds[1][0] == Unread.READ.value:
            permitted, found = self.judge_family(packets, Family(int(kinds[0][0])))
            return Judged(permitted, tuple(found), 0)
        permitted = np.zeros(len(packets), np.bool_)
        is_read = kinds[1] == Unread.READ.value
        counted: list[tuple[I32, npt.NDArray[np.intp]]] = []
        for family in Family:
            mine = np.flatnonzero(is_read & (packets["family"] == family.value))
            if len(mine):
                passes, found = self.judge_family(packets[mine], family)
                permitted[mine] = passes
                counted += [(numbers, mine[which]) for numbers, which in found]
        return Judged(permitted, tuple(counted), len(packets) - int(np.count_nonzero(is_read)))

    def limit(self, judged: Judged, buckets: Buckets) -> Judged:
        """Deny what limited rows permit beyond their tenants' buckets."""
        if not self.limits:
            return judged
        permitted = judged.permitted.copy()
        for rows, packets in judged.counted:
            for number in self.limits.keys() & set(rows.tolist()):
                mine = packets[rows == number]
                tenant, rate = self.limits[number]
                permitted[mine[buckets.take(tenant, len(mine), rate=rate, burst=rate) :]] = False
        return replace(judged, permitted=permitted)

    def judge_family(self, packets: Packets, family: Family) -> tuple[Bools, list[tuple[I32, npt.NDArray[np.intp]]]]:
        """Decide one IP version's packets: a mask of those that pass, and the rows found.

        The rows are by list.
        """
        counted = []
        permitted = np.zeros(len(packets), np.bool_)
        left = np.arange(len(packets))
        for stage in Stage:
            rows = self.rows[family, stage]
            if rows.is_empty or not len(left):
                continue
            number = rows.first(packets[left])
            is_found = number != NONE
            which, number = left[is_found], number[is_found]
            permitted[which] = self.permits[number]
            counted.append((number, which))
            goes_on = ~is_found
            if stage is not Stage.OPERATOR:  # which decides alone
                goes_on[is_found] = self.permits[number]
            left = left[goes_on]
        return permitted, counted


def _log_settings(row: QueueRow) -> Logged | None:
    owner = read_comment(row.comment)
    if row.log is None or owner is None:
        return None
    return Logged(Cookie(Tier.SERVER, *owner).pack(), row.tenant, row.log)


def _by_place(
    removed: Mapping[int, QueueRow], added: Mapping[int, QueueRow]
) -> dict[Place, tuple[list[int], list[Placed]]]:
    """Sort a change by place.

    A number's row stays at one place: the place is a part of what it is called.
    """
    found: dict[Place, tuple[list[int], list[Placed]]] = {}
    for number, row in removed.items():
        found.setdefault((row.box.family, row.stage), ([], []))[0].append(number)
    for number, row in added.items():
        found.setdefault((row.box.family, row.stage), ([], []))[1].append(Placed(row.order, number, row.box))
    return found

"""The driver's own rows on a switch, replaced by every change, in no program.

The stamp says which program the switch holds, and the cache's mark has the switch forget what it has cached
(`cachemark.py`). Both bear the cookie of a stamp; whatever else does is a foreign flow.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import cachemark
from orchestrator.enforce.drivers.openflow.bundle import CookieMatch
from orchestrator.program.digest import DIGEST_BYTES
from orchestrator.program.flows import U64, Flow, FlowTable
from orchestrator.program.program import Tier

KIND_MASK = 0xFFFF << 48
"""Cookie bits: whose flow it is, its tier and its kind."""

Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Own:
    """The change of the driver's own rows."""

    removed: Sequence[Flow]
    replaced: CookieMatch
    """The stamp, whatever it says."""
    added: Sequence[Flow]


class OwnRows:
    """Those of one switch, of a tier."""

    def __init__(self, tier: Tier) -> None:
        self.cookie = Cookie(tier, Kind.STAMP).pack()
        """What all of them bear, but for the number."""
        self.stamps = CookieMatch(Table.STAMP, self.cookie, KIND_MASK)
        self._turn = secrets.randbelow(cachemark.TURNS)
        self._marks: Sequence[Flow] = ()
        self._behind = cachemark.BEHIND_LOOK_UPS.get(tier, ())
        self._looks_up = False
        self._tables = np.array((cachemark.TABLE, *self._behind), np.uint8)

    def change(self, stamp: Stamp, tables: Iterable[int], *, marked: bool) -> Own:
        """Return the change to a new stamp, and to another mark if `marked`.

        `tables` are the tables of rows that come.
        """
        self._looks_up = self._looks_up or (bool(self._behind) and self._behind[0] in tables)
        comes = [self.stamp(stamp)]
        if marked:
            turn = (self._turn + 1) % cachemark.TURNS
            places = (cachemark.TABLE, *(self._behind if self._looks_up else ()))
            comes += [cachemark.row(turn, self.cookie, table) for table in places]
        return Own(self._marks, self.stamps, comes)

    def note_change(self, own: Own) -> None:
        """The switch has made a change."""
        self.remember(own.added[1:])

    def note_observed(self, marks: Sequence[Flow], tables: Iterable[int]) -> None:
        """Take a full reading: the marks that a switch holds, and other rows' tables."""
        self._looks_up = bool(self._behind) and self._behind[0] in tables
        self.remember(marks)

    def remember(self, marks: Sequence[Flow]) -> None:
        """The marks that the switch holds: the next change removes them."""
        self._marks = marks
        self._turn = max((cachemark.turn_of(mark, self.cookie) or 0 for mark in marks), default=self._turn)

    def stamp(self, stamp: Stamp) -> Flow:
        """No packet meets the stamp: nothing goes to its table."""
        cookie = self.cookie | stamp.generation & HIGHEST_NUMBER
        return Flow(Table.STAMP, 0, oxm.stamp_match(stamp.digest), b"", cookie)

    def is_stamp(self, row: Flow) -> bool:
        return row.table == Table.STAMP and row.cookie & KIND_MASK == self.cookie

    def are_stamps(self, flows: FlowTable) -> Rows:
        return np.asarray(self.are_own(flows.cookie) & (flows.table == Table.STAMP))

    def are_marks(self, flows: FlowTable) -> Rows:
        found: Rows = self.are_own(flows.cookie) & np.isin(flows.table, self._tables)
        for index in np.flatnonzero(found).tolist():
            found[index] = cachemark.turn_of(flows.row(index), self.cookie) is not None
        return found

    def are_own(self, cookies: U64) -> Rows:
        """Which cookies are those of such rows."""
        return np.asarray(cookies & np.uint64(KIND_MASK) == np.uint64(self.cookie))


def read_stamp(stamps: Sequence[Flow]) -> Stamp | None:
    """Return the stamp of the one stamp flow.

    Anything but exactly one good stamp is None.
    """
    if len(stamps) != 1:
        return None
    flow = stamps[0]
    cookie = Cookie.unpack(flow.cookie)
    digest = flow.match[4:12] + flow.match[16:24]
    if cookie is None or len(digest) != DIGEST_BYTES or oxm.stamp_match(digest) != flow.match:
        return None
    return Stamp(cookie.number, digest)

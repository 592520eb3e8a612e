"""The driver's own rows on a switch, replaced by every change, in no program.

The stamp says which program the switch holds, and the cache's mark has the switch forget what it has cached
(below). Both bear the cookie of a stamp; whatever else does is a foreign flow.

The row by which a change makes the switch forget what it has cached.

A switch that forwards in the daemon keeps its verdicts in megaflows: masked keys with actions. After a change Open
vSwitch judges each anew, and where its mask still holds it puts the new actions in its place. It finds that place by a
packet and not by the megaflow's name (3.1), so of two that overlap the other one may get them: then packets that the
new program denies pass, for as long as they come. Masks overlap where a program asks for fewer bits than the one before
it did, as when a rule goes.

A megaflow whose mask lacks a bit that is looked at now is not rewritten but deleted, by its name. So every change has
one row, ahead of all others in table 0, that asks for 16 of the 32 bits of the packet mark, and not for the same 16 as
the row that it replaces. A packet that comes in has no mark, so none ever meets the row.

A packet whose connection was looked up begins anew behind the look-up: its next megaflow has none of the bits that
table 0 looked at. So where a program looks connections up there is such a row, of the same turn, in every table in
which packets go on.

The kernel's datapath finds megaflows by their names, and packets there may have marks of somebody's: there is no such
row.

**Switches that forward in the kernel.** A neighbour solicitation is made its own answer by writing two fields that
Linux' datapath does not know (Open vSwitch calls them the ND extensions): the kind of the first option, and the flags.
Where the datapath is the kernel's, Open vSwitch refuses such a row at once, which tells one kind of switch from the
other. Forwarding in the daemon (`datapath_type=netdev`) knows both.

There the solicitation is made another one, from the address that was asked for, about the asker's own. It names its
sender's MAC address, which the asker notes before it answers (RFC 4861, section 7.2.3), and that is what it wanted.
Such a note is "stale": good to send to, and never confirmed, so an asker that hears nothing back from higher layers
asks again now and then, and is told again. Its answers are dropped, as all discovery from endpoints is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP, IN_PORT, copy_field, instructions, output, set_field
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.pipelines.host import GATEWAY_MAC, Table
from orchestrator.compile.pipelines.spread import SpreadTable
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.bundle import CookieMatch
from orchestrator.enforce.drivers.openflow.messages import ErrorMessage
from orchestrator.policy.protocols import ICMPV6
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.flows import U64, Flow, FlowTable
from orchestrator.program.program import Tier

MARK_TABLE, MARK_PRIORITY = 0, 0xFFFF
"""Where every packet comes by first, in every tier's pipeline."""

BEHIND_LOOK_UPS: Mapping[Tier, tuple[int, ...]] = MappingProxyType(
    {Tier.HOST: (Table.STATE, Table.LIFTED, Table.SEND), Tier.SPREAD: (SpreadTable.KNOWN,)}
)
"""Where packets go on when their connections were looked up or remembered; first the table of all such programs."""

_TABLES = frozenset({MARK_TABLE}).union(*BEHIND_LOOK_UPS.values())

MARK_TURNS = 1 << 16
"""So many rows there are."""


@lru_cache(maxsize=1024)
def mark_row(turn: int, cookie: int, table: int = MARK_TABLE) -> Flow:
    """The row of a turn; `cookie` is that of the driver's own rows, number 0."""
    bits = sum(1 << 2 * place + (turn >> place & 1) for place in range(16))
    return Flow(table, MARK_PRIORITY, Term(oxm.PKT_MARK, bits, bits).pack(), DROP, cookie + turn)


def mark_turn(found: Flow, cookie: int) -> int | None:
    """The turn whose row this is; None for any other row."""
    turn = found.cookie - cookie
    is_turn = 0 <= turn < MARK_TURNS and found.table in _TABLES
    return turn if is_turn and found == mark_row(turn, cookie, found.table) else None


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
        """The cookie that all of them bear, but for the number."""
        self.stamps = CookieMatch(Table.STAMP, self.cookie, KIND_MASK)
        self._turn = secrets.randbelow(MARK_TURNS)
        self._marks: Sequence[Flow] = ()
        self._behind = BEHIND_LOOK_UPS.get(tier, ())
        self._looks_up = False
        self._tables = np.array((MARK_TABLE, *self._behind), np.uint8)

    def change(self, stamp: Stamp, tables: Iterable[int], *, marked: bool) -> Own:
        """Return the change to a new stamp, and to another mark if `marked`.

        `tables` are the tables of rows that come.
        """
        self._looks_up = self._looks_up or (bool(self._behind) and self._behind[0] in tables)
        comes = [self.stamp(stamp)]
        if marked:
            turn = (self._turn + 1) % MARK_TURNS
            places = (MARK_TABLE, *(self._behind if self._looks_up else ()))
            comes += [mark_row(turn, self.cookie, table) for table in places]
        return Own(self._marks, self.stamps, comes)

    def note_change(self, own: Own) -> None:
        """Note that the switch has made a change."""
        self.remember(own.added[1:])

    def note_observed(self, marks: Sequence[Flow], tables: Iterable[int]) -> None:
        """Take a full reading: the marks that a switch holds, and other rows' tables."""
        self._looks_up = bool(self._behind) and self._behind[0] in tables
        self.remember(marks)

    def remember(self, marks: Sequence[Flow]) -> None:
        """The marks that the switch holds: the next change removes them."""
        self._marks = marks
        self._turn = max((mark_turn(mark, self.cookie) or 0 for mark in marks), default=self._turn)

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
            found[index] = mark_turn(flows.row(index), self.cookie) is not None
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


_UNKNOWN = tuple(field.header.to_bytes(4, "big") for field in (oxm.ND_RESERVED, oxm.ND_OPTIONS_TYPE))
_BAD_ACTION, _BAD_SET_ARGUMENT = 2, 15
_ADVERTISEMENT = 136

ASKING_BACK = instructions(
    (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        copy_field(oxm.IPV6_SRC, oxm.IPV6_DST),
        copy_field(oxm.ND_TARGET, oxm.IPV6_SRC),
        copy_field(oxm.IPV6_DST, oxm.ND_TARGET),
        set_field(oxm.ND_SLL, GATEWAY_MAC),
        output(IN_PORT),
    )
)
"""The instructions for a solicitation."""

TRIAL = Flow(
    Table.RESPONDER,
    0,
    oxm.pack((Term(oxm.ETH_TYPE, oxm.IPV6), Term(oxm.IP_PROTO, ICMPV6), Term(oxm.ICMPV6_TYPE, _ADVERTISEMENT))),
    instructions((set_field(oxm.ND_RESERVED, 0),)),
    0,
)
"""A row that is only ever put into a bundle that is thrown away: a switch that refuses it forwards in the kernel."""


def adapt_rows(flows: FlowTable) -> FlowTable:
    """Rows of a program as a switch that forwards in the kernel holds them."""
    answering = [
        index
        for index in np.flatnonzero(flows.table == Table.RESPONDER).tolist()
        if _writes_unknown(flows.instruction_set[flows.instructions[index]])
    ]
    if not answering:
        return flows
    which = flows.instructions.copy()
    which[answering] = len(flows.instruction_set)
    return replace(flows, instructions=which, instruction_set=(*flows.instruction_set, ASKING_BACK))


def adapt_row(flow: Flow) -> Flow:
    """Return a row as a switch that forwards in the kernel holds it."""
    return replace(flow, instructions=ASKING_BACK) if is_answer(flow) else flow


def is_answer(flow: Flow) -> bool:
    """Whether a row makes a solicitation its answer, as the kernel cannot."""
    return flow.table == Table.RESPONDER and _writes_unknown(flow.instructions)


def is_refusal(error: ErrorMessage) -> bool:
    """Whether a complaint about the trial says that the datapath does not know a field."""
    return (error.type, error.code) == (_BAD_ACTION, _BAD_SET_ARGUMENT)


def _writes_unknown(data: bytes) -> bool:
    return any(field in data for field in _UNKNOWN)

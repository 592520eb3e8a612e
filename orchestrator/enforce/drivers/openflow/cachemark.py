"""The row by which a change makes the switch forget what it has cached.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.pipelines.host import Table
from orchestrator.compile.pipelines.spread import SpreadTable
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier

TABLE, PRIORITY = 0, 0xFFFF
"""Where every packet comes by first, in every tier's pipeline."""

BEHIND_LOOK_UPS: Mapping[Tier, tuple[int, ...]] = MappingProxyType(
    {Tier.HOST: (Table.STATE, Table.LIFTED, Table.SEND), Tier.SPREAD: (SpreadTable.KNOWN,)}
)
"""Where packets go on when their connections were looked up or remembered; first the table of all such programs."""

_TABLES = frozenset({TABLE}).union(*BEHIND_LOOK_UPS.values())

TURNS = 1 << 16
"""So many rows there are."""


@lru_cache(maxsize=1024)
def row(turn: int, cookie: int, table: int = TABLE) -> Flow:
    """The row of a turn; `cookie` is that of the driver's own rows, number 0."""
    bits = sum(1 << 2 * place + (turn >> place & 1) for place in range(16))
    return Flow(table, PRIORITY, Term(oxm.PKT_MARK, bits, bits).pack(), DROP, cookie + turn)


def turn_of(found: Flow, cookie: int) -> int | None:
    """The turn whose row this is; None for any other row."""
    turn = found.cookie - cookie
    is_turn = 0 <= turn < TURNS and found.table in _TABLES
    return turn if is_turn and found == row(turn, cookie, found.table) else None

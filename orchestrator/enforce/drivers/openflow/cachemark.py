"""The row by which a change makes the switch forget what it has cached.

A switch that forwards in the daemon keeps its verdicts in megaflows: masked keys with actions. After a change Open
vSwitch judges each anew, and where its mask still holds it puts the new actions in its place. It finds that place by a
packet and not by the megaflow's name (3.1), so of two that overlap the other one may get them: then packets that the
new program denies pass, for as long as they come. Masks overlap where a program asks for fewer bits than the one before
it did, as when a rule goes.

A megaflow whose mask lacks a bit that is looked at now is not rewritten but deleted, by its name. So every change has
one row, ahead of all others in table 0, that asks for 16 of the 32 bits of the packet mark, and not for the same 16 as
the row that it replaces. A packet that comes in has no mark, so none ever meets the row.

The kernel's datapath finds megaflows by their names, and packets there may have marks of somebody's: there is no such
row.
"""

from __future__ import annotations

from functools import lru_cache

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP
from orchestrator.compile.openflow.oxm import Term
from orchestrator.program.flows import Flow

TABLE, PRIORITY = 0, 0xFFFF
"""Where every packet comes by first, in every tier's pipeline."""

TURNS = 1 << 16
"""So many rows there are."""


@lru_cache(maxsize=1024)
def row(turn: int, cookie: int) -> Flow:
    """The row of a turn; `cookie` is that of the driver's own rows, number 0."""
    bits = sum(1 << 2 * place + (turn >> place & 1) for place in range(16))
    return Flow(TABLE, PRIORITY, Term(oxm.PKT_MARK, bits, bits).pack(), DROP, cookie + turn)


def turn_of(found: Flow, cookie: int) -> int | None:
    """The turn whose row this is; None for any other row."""
    turn = found.cookie - cookie
    return turn if 0 <= turn < TURNS and found == row(turn, cookie) else None

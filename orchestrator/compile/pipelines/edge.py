"""An edge switch's pipeline as data: tables, registers, matched fields and next tables.

`edgeprogram.py` makes the rows, a test holds them to what is declared, and `docs/edge-pipeline.md` is written from
here.
"""

from __future__ import annotations

import enum

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.oxm import REGISTERS
from orchestrator.compile.pipelines.host import LIFTED_PRIORITY, RULE_FIELDS, Band, Register, Stage

REGISTER_BITS = 32

LINES_TOP = 65000
"""The priority of the first line of each IP version; the others follow downwards."""
EXCEPTION_PRIORITY = 1000
"""Of all exceptions: they are disjoint."""


class EdgeTable(enum.IntEnum):
    """Table numbers, in the order in which a packet meets them."""

    ADMISSION = 0
    SENDERS = 5
    HEAVY = 10
    EXCEPTIONS = 20
    HASH = 30
    ONE_HOT = 31
    LINES = 40
    STAMP = 253


LINE_BITS = tuple(
    Register(f"bits_{number}", REGISTERS[number], "0-31", f"the bits {32 * number} to {32 * number + 31} of the word")
    for number in range(9)
)
"""A packet's word: the bits that its chunk hashes to, 32 in each register."""
HASHED = Register("hashed", REGISTERS[15], "0-15", "the bit that one function hashes the chunk to")

EDGE_REGISTERS = (*LINE_BITS, HASHED)

EDGE_STAGES = (
    Stage(
        EdgeTable.ADMISSION,
        "Lets in IP packets from the ports towards the outside, and nothing else: nothing comes back this way. Tagged "
        "frames and frames to several are dropped.",
        (oxm.IN_PORT, oxm.ETH_DST, oxm.ETH_TYPE, oxm.VLAN_VID),
        (EdgeTable.SENDERS,),
        "drop",
    ),
    Stage(
        EdgeTable.SENDERS,
        "Drops packets that come from outside with a tenant's address as their source, which only the edge can tell.",
        (oxm.ETH_TYPE, oxm.IPV4_SRC, oxm.IPV6_SRC),
        (EdgeTable.HEAVY,),
        "on to heavy",
    ),
    Stage(
        EdgeTable.HEAVY,
        "Heavy hitters: packets that popular rules permit go straight to the WAN. What stands above such a rule in its "
        "list stands above it here and sends its packets on: the edge itself denies nothing that the policy speaks of.",
        RULE_FIELDS,
        (EdgeTable.EXCEPTIONS,),
        "on to exceptions",
    ),
    Stage(
        EdgeTable.EXCEPTIONS,
        "Chunks with an entry of their own: those that came since lines were built, and those that an earlier line of "
        "another server would take. Out to their firewall server.",
        (oxm.ETH_TYPE, oxm.IPV4_DST, oxm.IPV6_DST),
        (EdgeTable.HASH,),
        "on to hash",
    ),
    Stage(
        EdgeTable.HASH,
        "Puts the chunk, the leading bits of the destination, into the low bits of `eth_src`, and for each function "
        "hashes that with the function's basis and looks the result up in `one_hot`.",
        (oxm.ETH_TYPE,),
        (EdgeTable.ONE_HOT, EdgeTable.LINES),
        "drop",
    ),
    Stage(
        EdgeTable.ONE_HOT,
        "Sets the bit of the word that a function's hash names. Packets come here between two actions of `hash` and go "
        "on there.",
        (HASHED.field,),
        (),
        "nothing",
    ),
    Stage(
        EdgeTable.LINES,
        "The ternary Bloom lines: a line asks that the word's bits be 0 wherever it does not hold one. Out to the "
        "line's firewall server; whom no line knows is nobody's.",
        (oxm.ETH_TYPE, *(register.field for register in LINE_BITS)),
        (),
        "drop",
    ),
    Stage(
        EdgeTable.STAMP,
        "No packet comes here: the row carries the program's digest and generation, as on every switch.",
        REGISTERS[:4],
        (),
        "drop",
    ),
)

EDGE_BANDS = (
    Band(f"{LINES_TOP} downwards", "lines, in the order in which they are asked, in each IP version"),
    Band(f"{LIFTED_PRIORITY} downwards", "heavy hitters, in their own table"),
    Band(f"{EXCEPTION_PRIORITY}", "exceptions"),
    Band("0", "the end of the table"),
)

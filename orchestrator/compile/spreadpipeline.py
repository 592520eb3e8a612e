"""The pipeline of a spreading switch, declared as data: tables, registers, priorities.

`spread.py` makes the rows, a test holds them to what is declared, and `docs/spread-pipeline.md` is written from here.

    outside ──▶ admission ──▶ group "from outside" ──▶ a firewall's left port           stateless firewalls
    inside  ──▶     │    ──▶ group "from inside"  ──▶ its right port
                    │
                    └──▶ hash ──▶ owners ──▶ delivery ──▶ the owner's left or right     stateful ones: both directions
                          256 buckets, symmetric                                        meet the same
    a firewall's left port ──▶ admission ──▶ outside;  its right port ──▶ inside

Stateless firewalls get their packets by a group whose bucket the datapath's own hash chooses: one cache entry a bucket,
but the two directions of a connection may meet two firewalls, which both must permit it anyway. Stateful ones need the
hash to be symmetric, which Open vSwitch computes in the pipeline at the price of an upcall for each connection.
"""

from __future__ import annotations

import enum

from orchestrator.compile import oxm
from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.compile.oxm import REGISTERS
from orchestrator.compile.pipeline import Band, Register, Stage, Table
from orchestrator.program.program import Tier

OUTSIDE_PORT, INSIDE_PORT = "sp-out", "sp-in"
"""The switch's interfaces towards clients and towards the hosts of the domain."""

FROM_OUTSIDE_GROUP, FROM_INSIDE_GROUP = 1, 2

ADMITTED_PRIORITY = 10
FORMER_PRIORITY, KNOWN_PRIORITY, NEW_PRIORITY = 20, 30, 40
"""Of a bucket whose former owner drains, asked from the last on: does a connection begin? It is the new owner's, and is
noted. Was it noted? It is whose it was noted as. Else it is the former owner's."""

BUCKET = Register("bucket", REGISTERS[0], "0-15", "the packet's bucket by its hash, the same for both directions")
FROM_INSIDE = Register("from_inside", REGISTERS[1], "0", "1: the packet came from the hosts")
OWNER = Register("owner", REGISTERS[2], "0-31", "number of the firewall that gets the packet")

NOTED = Register("noted", REGISTERS[3], "0-31", "1 + number of the firewall that a connection was noted for; 0: none")

SPREAD_REGISTERS = (BUCKET, FROM_INSIDE, OWNER, NOTED)


class SpreadTable(enum.IntEnum):
    """Table numbers, in the order in which a packet meets them."""

    ADMISSION = 0
    HASH = 10
    NOTED = 15
    OWNERS = 20
    DELIVERY = 30
    STAMP = Table.STAMP


NOTED_COOKIE = Cookie(Tier.SPREAD, Kind.MEMBER, HIGHEST_NUMBER).pack()
"""Of the flows in `SpreadTable.NOTED`, which the switch itself writes: they are no part of a program."""


SPREAD_STAGES = (
    Stage(
        SpreadTable.ADMISSION,
        "IP packets come in by known ports: from outside and inside they are spread, from firewalls they go on.",
        (oxm.IN_PORT, oxm.ETH_TYPE),
        (SpreadTable.HASH,),
        "drop",
    ),
    Stage(
        SpreadTable.HASH,
        "Which bucket the packet is in; while a firewall drains, also whether its connection was noted.",
        (),
        (SpreadTable.OWNERS,),
        "drop",
    ),
    Stage(
        SpreadTable.NOTED,
        "Asked from the table before, while a firewall drains: connections that began since. The switch writes these "
        "flows itself; they are no part of a program.",
        (),
        (),
        "nothing noted",
    ),
    Stage(
        SpreadTable.OWNERS,
        "Whose the bucket is: 256 rows. What is in a bucket that is nobody's is dropped.",
        (oxm.ETH_TYPE, oxm.IP_PROTO, oxm.TCP_FLAGS, BUCKET.field, NOTED.field),
        (SpreadTable.DELIVERY,),
        "drop",
    ),
    Stage(
        SpreadTable.DELIVERY,
        "Out of the owner's port on the side that the packet came from, addressed to it.",
        (FROM_INSIDE.field, OWNER.field),
        (),
        "drop",
    ),
)

SPREAD_BANDS = (
    Band(f"{NEW_PRIORITY}", "of a bucket whose former owner drains: a connection begins"),
    Band(f"{KNOWN_PRIORITY}", "the same: a connection that was noted"),
    Band(f"{FORMER_PRIORITY}", "the same: everything else, which stays with the former owner"),
    Band(f"{ADMITTED_PRIORITY}", "all other rows"),
)

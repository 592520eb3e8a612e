"""The pipeline of a spreading switch, declared as data: tables, registers, priorities.

`spreadprogram.py` makes the rows, a test holds them to what is declared, and `docs/spread-pipeline.md` is written from
here.

    outside ──▶ admission ──▶ group "from outside" ──▶ a firewall's left port           stateless firewalls
    inside  ──▶     │    ──▶ group "from inside"  ──▶ its right port
                    │
                    └──▶ known ──────────────────────▶ delivery ──▶ the owner's left    stateful ones: a connection
                           └──▶ owners ──▶ begun ────────▲          or right            stays with who it began with
                          256 buckets, symmetric
    a firewall's left port ──▶ admission ──▶ outside;  its right port ──▶ inside

Stateless firewalls get their packets by a group whose bucket the datapath's own hash chooses: one cache entry a bucket,
but the two directions of a connection may meet two firewalls, which both must permit it anyway. Before stateful ones
the switch tracks connections itself: one that begins goes to the owner of its bucket, by a hash that is symmetric, and
is marked with it; whatever belongs to it goes there too, whoever owns the bucket later.
"""

from __future__ import annotations

import enum

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.oxm import REGISTERS
from orchestrator.compile.pipelines.host import Band, Register, Stage, Table

OUTSIDE_PORT, INSIDE_PORT = "sp-out", "sp-in"
"""The switch's interfaces towards clients and towards the hosts of the domain."""

FROM_OUTSIDE_GROUP, FROM_INSIDE_GROUP = 1, 2

ADMITTED_PRIORITY = 10
BEFORE_PRIORITY = 20
"""Of rows for connections whose firewall is there, and for fragments. What is asked after them is for all others."""

BUCKET = Register("bucket", REGISTERS[0], "0-15", "the packet's bucket by its hash, the same for both directions")
FROM_INSIDE = Register("from_inside", REGISTERS[1], "0", "1: the packet came from the hosts")
OWNER = Register("owner", REGISTERS[2], "0-31", "number of the firewall that gets the packet")

SPREAD_REGISTERS = (BUCKET, FROM_INSIDE, OWNER)


class SpreadTable(enum.IntEnum):
    """Table numbers, in the order in which a packet meets them."""

    ADMISSION = 0
    KNOWN = 10
    OWNERS = 20
    BEGUN = 25
    DELIVERY = 30
    STAMP = Table.STAMP


SPREAD_STAGES = (
    Stage(
        SpreadTable.ADMISSION,
        "IP packets come in by known ports: from outside and inside they are spread, from firewalls they go on. Before "
        "stateful firewalls, their connection is looked up; that of fragments is not, for then the switch would have "
        "to put them together. Where a port leads to a network with several firewalls, what goes on is what bears the "
        "MAC address of one of them and is for the gateway's.",
        (oxm.IN_PORT, oxm.ETH_SRC, oxm.ETH_DST, oxm.ETH_TYPE, oxm.IP_FRAG),
        (SpreadTable.KNOWN,),
        "drop",
    ),
    Stage(
        SpreadTable.KNOWN,
        "Whose the connection is, by its mark. For one without a mark, or whose firewall is no more: which bucket it "
        "is in.",
        (oxm.CT_MARK,),
        (SpreadTable.OWNERS, SpreadTable.DELIVERY),
        "drop",
    ),
    Stage(
        SpreadTable.OWNERS,
        "Whose the bucket is: 256 rows. What is in a bucket that is nobody's is dropped.",
        (BUCKET.field,),
        (SpreadTable.BEGUN,),
        "drop",
    ),
    Stage(
        SpreadTable.BEGUN,
        "The connection is marked with its owner, for as long as the switch knows it. Fragments mark nothing.",
        (oxm.ETH_TYPE, oxm.IP_FRAG, OWNER.field),
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
    Band(f"{BEFORE_PRIORITY}", "connections whose firewall is there; fragments"),
    Band(f"{ADMITTED_PRIORITY}", "all other rows"),
)

"""The host tier's pipeline as data: tables, registers, matched fields and next tables.

All code that has to agree on a table's number or a register's meaning takes it from here. `structure.py` and
`hostprogram.py` make the rows, a test holds them to what is declared, and `docs/pipeline.md` is written from here
(`pipeline_page`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, set_field
from orchestrator.compile.openflow.oxm import REGISTERS, Field

GATEWAY_MAC = 0x0AAC1F000001
"""The virtual router's address, the same on every switch: endpoints send to it, the edge addresses hosts by it."""
GATEWAY_IPV4, GATEWAY_IPV6 = "169.254.1.1", "fe80::1"
"""The virtual router as routes name it: the default routes of endpoints, and those of a host's kernel to its switch."""

SERVICES_PORT = "svc0"
"""The internal port of a host's switch behind which the host answers what its endpoints need to come up."""
SERVICES_MAC = 0x0AAC1F000002
SERVICES_IPV4 = 0xA9FEA9FD
"""169.254.169.253: a host's resolver, and its name as a DHCP server. The same on every host."""
SERVICES_IPV6 = 0xFD00_AC1F << 96 | 0x53
"""fd00:ac1f::53: the resolver of endpoints without IPv4."""
CALLER_MAC, CALLER_MASK = 0x0AAD00000000, 0xFFFF00000000
"""A MAC address at the services' port, whose lower 32 bits are the number of the port that asked or is answered."""

DEFAULT_PRIORITY = 300
"""The end of a list: where no rule speaks."""
LOWEST_RULE_PRIORITY = 301
HIGHEST_RULE_PRIORITY = 30000
STATIC_PRIORITY = 30001
"""Operator rules downwards from here; and, in the tenants' tables, the row that passes packets by."""
LIFTED_PRIORITY = 65001
"""Lifted rules downwards from here."""
TRACK_PRIORITY = 65010
"""Where connections are tracked, the rows above all lifted ones that have a packet's looked up."""
MISS_PRIORITY = 0
"""The last row of every table."""


class Table(enum.IntEnum):
    """Table numbers, in the order in which a packet meets them."""

    ADMISSION = 0
    SOURCES = 2
    RESPONDER = 5
    ADVERTISER = 6
    SERVICES = 7
    STATE = 8
    SENDER_PORTS = 9
    LIFTED = 10
    ALONE_OPERATOR = 12
    ALONE_EGRESS = 14
    OPERATOR = 20
    EGRESS = 30
    LOCAL = 40
    RECEIVER_PORTS = 45
    INGRESS = 50
    ALONE_INGRESS = 52
    OUTPUT = 60
    SEND = 70
    METERS = 252
    STAMP = 253


class Asks(enum.IntFlag):
    """Bits of the register `asks`."""

    SENDER = 1
    """The sender's list is asked about the connection."""
    RECEIVER = 2
    BOTH = SENDER | RECEIVER
    PLACING = 4
    """The packet is on its way to find out which lists are asked, and about what."""
    PLACED = 8
    OPERATOR = 16
    """A rule of the operator's, which asks about connections, is the first that matches the packet."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register's meaning along the pipeline.

    All bits of all registers are zero when a packet comes in.
    """

    name: str
    field: Field
    bits: str
    meaning: str


SOURCE_TENANT = Register(
    "source_tenant", REGISTERS[0], "0-31", "number of the sending endpoint's tenant; 0: not an endpoint here"
)
DESTINATION_TENANT = Register(
    "destination_tenant", REGISTERS[1], "0-31", "number of the receiving local endpoint's tenant"
)
FROM_UPLINK = Register("from_uplink", REGISTERS[2], "0", "1: the packet came in by the uplink")
OPERATOR_PERMIT = Register(
    "operator_permit", REGISTERS[3], "0", "1: the operator permits it, or a lifted rule: lists are not asked any more"
)
OUTPUT_PORT = Register(
    "output_port", REGISTERS[4], "0-31", "port of the receiving local endpoint; 0: leave by the uplink"
)
SCRATCH = Register(
    "scratch", REGISTERS[5], "0-31", "holds a field while two are swapped or one is read, within one list of actions"
)
REPLY = Register(
    "reply", REGISTERS[6], "0-1", "1: against the direction of its connection, lists are still to be asked; 2: they are"
)
ASKS = Register(
    "asks",
    REGISTERS[7],
    "0-4",
    "where rules are stateless: 1: the sender's list is asked about the connection, 2: the receiver's; 4: that is "
    "being found out, 8: it is known; 16: an operator's rule, which is not stateless, meets the packet first",
)

FIRST_DESTINATION = tuple(
    Register(
        f"first_destination_{place}",
        REGISTERS[8 + place],
        "0-31",
        f"where connections are tracked: bytes {4 * place} to {4 * place + 3} of the first packet's destination",
    )
    for place in range(4)
)
"""An IPv4 address is in the first of them."""
FIRST_PORT = Register(
    "first_port", REGISTERS[12], "0-15", "where connections are tracked: the first packet's destination port"
)

ALL_REGISTERS = (
    SOURCE_TENANT, DESTINATION_TENANT, FROM_UPLINK, OPERATOR_PERMIT, OUTPUT_PORT, SCRATCH, REPLY, ASKS,
    *FIRST_DESTINATION, FIRST_PORT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """A table: purpose, fields that its rows may match, next tables, and its miss."""

    table: enum.IntEnum
    purpose: str
    looks_at: tuple[Field, ...]
    goes_to: tuple[enum.IntEnum, ...]
    miss: str


RULE_FIELDS = (oxm.CONJ_ID, oxm.ETH_TYPE, *oxm.HEADERS)
"""What a rule may look at."""

CONNECTION_FIELDS = (
    oxm.CT_STATE, oxm.CT_NW_SRC, oxm.CT_IPV6_SRC, oxm.CT_NW_DST, oxm.CT_IPV6_DST, oxm.CT_NW_PROTO, oxm.CT_TP_SRC,
    oxm.CT_TP_DST,
)  # fmt: skip
"""What a rule looks at where connections are tracked, beside the Ethernet type."""

STAGES = (
    Stage(
        Table.ADMISSION,
        "Lets in what may come in by a port, and notes where it came from. Tagged frames, frames to several, first "
        "fragments too short for their ports, and neighbour discovery that is not answered are dropped. From an "
        "endpoint's port only its own MAC address and its own prefixes may send; its ARP requests and neighbour "
        "solicitations for others go to the responder. By a shared port each of its endpoints sends so, to the "
        "gateway's MAC address alone and not to another one behind that port. From the uplink comes in what is IP and "
        "for the gateway's MAC address; whose name it bears, the next table asks. Where the host serves its endpoints, "
        "their questions (DHCP, router solicitations, DNS) go to the host alone, marked with the port that they came "
        "from; nobody else may answer DHCP.",
        (
            oxm.IN_PORT, oxm.ETH_SRC, oxm.ETH_DST, oxm.ETH_TYPE, oxm.VLAN_VID, oxm.IPV4_SRC, oxm.IPV6_SRC,
            oxm.IPV4_DST, oxm.IPV6_DST, oxm.IP_FRAG, oxm.IP_PROTO,
            oxm.TCP_SRC, oxm.TCP_DST, oxm.UDP_SRC, oxm.UDP_DST, oxm.SCTP_SRC, oxm.SCTP_DST,
            oxm.ICMPV6_TYPE, oxm.ICMPV6_CODE, oxm.ND_TARGET, oxm.ND_SLL,
            oxm.ARP_OP, oxm.ARP_SPA, oxm.ARP_TPA, oxm.ARP_SHA,
        ),
        (Table.SOURCES, Table.RESPONDER, Table.SERVICES, Table.SENDER_PORTS, Table.LOCAL),
        "drop",
    ),
    Stage(
        Table.SOURCES,
        "Packets from the uplink whose source is an endpoint on this switch are dropped: it sends by its own port, so "
        "somebody else speaks in its name. The rows write down the endpoint's port, so they exist only where that port "
        "does. Where an endpoint's prefix lies inside another's, the longest decides, and one that is elsewhere comes "
        "in. The prefix of all addresses, a router's, is nobody's name.",
        (oxm.ETH_TYPE, oxm.IPV4_SRC, oxm.IPV6_SRC),
        (Table.LIFTED,),
        "on to lifted",
    ),
    Stage(
        Table.RESPONDER,
        "Answers for every address with the gateway's MAC address: an ARP reply straight away; a neighbour "
        "solicitation becomes an advertisement here and gets its link-layer address in the next table, for a flow may "
        "only set that field of what its match says is an advertisement.",
        (oxm.ETH_TYPE, oxm.IP_PROTO, oxm.ICMPV6_TYPE, oxm.ARP_OP),
        (Table.ADVERTISER,),
        "drop",
    ),
    Stage(
        Table.ADVERTISER,
        "Completes a neighbour advertisement and sends it back.",
        (oxm.ETH_TYPE, oxm.IP_PROTO, oxm.ICMPV6_TYPE),
        (),
        "drop",
    ),
    Stage(
        Table.SERVICES,
        "What endpoints send to the address of the host's services: names to resolve, and leases to renew.",
        (oxm.ETH_TYPE, oxm.IP_PROTO, oxm.TCP_DST, oxm.UDP_DST),
        (),
        "drop",
    ),
    Stage(
        Table.STATE,
        "Only where connections are tracked: what is known of the packet's. Invalid packets are dropped, and of TCP "
        "all that neither belong to a connection nor open one. What goes in its connection's direction goes on to the "
        "lists; a later fragment, and an ICMP error about a connection, past lifted rules, for these look at the "
        "packet's own header. A reply goes to `local` first, to find whose lists are to be asked. An end of this "
        "switch that does not know the connection, for a stateless rule decided there, lets nothing of it pass but "
        "what may open one.",
        (oxm.CT_STATE, oxm.CT_MARK, oxm.ETH_TYPE, oxm.IP_PROTO, oxm.IP_FRAG, oxm.TCP_FLAGS, ASKS.field),
        (Table.LIFTED, Table.ALONE_OPERATOR, Table.OPERATOR, Table.LOCAL),
        "drop",
    ),
    Stage(
        Table.SENDER_PORTS,
        "Where an egress list asks for source ports as well as for destination ports: the destination port of its "
        "packets is read whole, so that the switch's cache has one length of it in place of 17, and cannot be made to "
        "need the product of all lengths (`wholeports.py`). Nothing is decided here.",
        (oxm.ETH_TYPE, oxm.IP_FRAG, oxm.IP_PROTO, SOURCE_TENANT.field),
        (Table.LIFTED,),
        "on to lifted",
    ),
    Stage(
        Table.LIFTED,
        "Parts of lists, decided before anything else is looked at, so that packets of popular rules share few cache "
        "entries: for packets from the uplink what the operator and the receiver's ingress list say, for an endpoint's "
        "what the operator and its egress list say. `lifting.md` has the why and the proof. Where connections are "
        "tracked, a packet's is looked up here first, and the packet goes on in `state`; or, where rules are "
        "stateless, in `alone_operator`.",
        (*RULE_FIELDS, SOURCE_TENANT.field, FROM_UPLINK.field, oxm.CT_STATE),
        (Table.ALONE_OPERATOR, Table.OPERATOR, Table.LOCAL),
        "on to operator",
    ),
    Stage(
        Table.ALONE_OPERATOR,
        "Where rules are stateless: the operator's rules, asked about the packet itself. What a stateless one permits "
        "passes both tenants' lists by; what another meets first, both are to be asked about by its connection.",
        (*RULE_FIELDS,),
        (Table.ALONE_EGRESS, Table.LOCAL),
        "on to alone_egress",
    ),
    Stage(
        Table.ALONE_EGRESS,
        "The egress list of the sending endpoint's tenant, down to its last stateless rule, in the same way. Where the "
        "first rule that matches is not stateless, or there is none, this list is to be asked about the connection.",
        (*RULE_FIELDS, SOURCE_TENANT.field, ASKS.field),
        (Table.LOCAL,),
        "on to local",
    ),
    Stage(
        Table.OPERATOR,
        "The operator's rules. A permit passes the tenants' lists by.",
        (*RULE_FIELDS, *CONNECTION_FIELDS),
        (Table.EGRESS, Table.LOCAL),
        "on to egress",
    ),
    Stage(
        Table.EGRESS,
        "The egress list of the sending endpoint's tenant. Packets from the uplink pass by: their sender's host asked.",
        (*RULE_FIELDS, *CONNECTION_FIELDS, SOURCE_TENANT.field),
        (Table.LOCAL,),
        "drop",
    ),
    Stage(
        Table.LOCAL,
        "Is the destination an endpoint here? Then its tenant, port and MAC address are written down, and the gateway "
        "becomes the sender. If not, endpoints' packets leave by the uplink and the uplink's are dropped.",
        (oxm.ETH_TYPE, oxm.IPV4_DST, oxm.IPV6_DST, FROM_UPLINK.field, REPLY.field, ASKS.field),
        (Table.RECEIVER_PORTS, Table.OUTPUT),
        "drop",
    ),
    Stage(
        Table.RECEIVER_PORTS,
        "The same as `sender_ports`, for the ingress list of the receiving endpoint's tenant. Where connections are "
        "tracked and that list names sources together with destinations or ports, the destination address and port of "
        "the first packet are copied into registers, so that they are asked for before sources are (`ownside.py`).",
        (
            oxm.ETH_TYPE, oxm.IP_FRAG, oxm.IP_PROTO, oxm.CT_STATE, DESTINATION_TENANT.field, OPERATOR_PERMIT.field,
            REPLY.field,
        ),
        (Table.INGRESS,),
        "on to ingress",
    ),
    Stage(
        Table.INGRESS,
        "The ingress list of the receiving endpoint's tenant, unless the operator has permitted the packet.",
        (
            *RULE_FIELDS, *CONNECTION_FIELDS, DESTINATION_TENANT.field, OPERATOR_PERMIT.field, REPLY.field, ASKS.field,
            *(each.field for each in FIRST_DESTINATION), FIRST_PORT.field,
        ),
        (Table.ALONE_INGRESS, Table.OUTPUT),
        "drop",
    ),
    Stage(
        Table.ALONE_INGRESS,
        "The ingress list of the receiving endpoint's tenant, as `alone_egress` is the other's.",
        (*RULE_FIELDS, DESTINATION_TENANT.field, ASKS.field),
        (Table.OUTPUT,),
        "on to output",
    ),
    Stage(
        Table.OUTPUT,
        "Out of the receiving endpoint's port, or out of the uplink, addressed from gateway to gateway. Where "
        "connections are tracked, a reply's way leads from here once more through the lists, with sender and receiver "
        "swapped: they are asked about the packet that opened the connection. What opens one is remembered, as every "
        "list has permitted it by now, and goes on in `send`. Where rules are stateless, a packet that no list is to "
        "be asked about goes out from here, and any other has its connection looked up.",
        (OUTPUT_PORT.field, REPLY.field, ASKS.field, oxm.CT_STATE, oxm.CT_MARK, oxm.ETH_TYPE),
        (Table.SEND,),
        "out of the port in the register",
    ),
    Stage(
        Table.SEND,
        "Only where connections are tracked: drops what opens a connection for which there was no room, which is told "
        "by its mark, and sends all else out as `output` does.",
        (OUTPUT_PORT.field, oxm.CT_STATE, oxm.CT_MARK),
        (),
        "out of the port in the register",
    ),
    Stage(
        Table.METERS,
        "No packet comes here. A row for every tenant with rules that log: its match says which meter bounds the "
        "reports of its packets, how many a second, and how many at once. So it says of every tenant's messages about "
        "path MTU, where the domain lets these in: rows of `ingress` and `lifted` that permit them drop what is "
        "beyond. Controllers make meters from these rows.",
        REGISTERS[:3],
        (),
        "drop",
    ),
    Stage(
        Table.STAMP,
        "No packet comes here. One row carries the program's digest in its match (the first four registers) and the "
        "generation in its cookie; it is written in the same transaction as the rows it speaks of. So is, where a "
        "switch forwards in its daemon, the row of table 0 at priority 65535, which looks at bits of the packet mark "
        "that no packet has: each change has another one, for which the daemon forgets what it has cached. Where "
        "connections are tracked, `state`, `lifted` and `send` have the same row, for packets begin anew there.",
        REGISTERS[:4],
        (),
        "drop",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Band:
    """A range of priorities in the tables that hold rules."""

    priorities: str
    holds: str


BANDS = (
    Band(f"{TRACK_PRIORITY}", "where connections are tracked, the rows that have a packet's looked up"),
    Band(f"{LIFTED_PRIORITY} downwards", "lifted rules"),
    Band(
        f"{STATIC_PRIORITY} downwards",
        "operator rules, in their own table; in egress and ingress the row that passes packets by",
    ),
    Band(
        f"{HIGHEST_RULE_PRIORITY} to {LOWEST_RULE_PRIORITY}",
        "tenants' rules by level; return traffic, being every list's last rule, at the lower end",
    ),
    Band(f"{DEFAULT_PRIORITY}", "the default of a tenant's list"),
    Band(f"{MISS_PRIORITY}", "the end of the table"),
)


ASK_LISTS = {
    Table.ALONE_OPERATOR: instructions([set_field(ASKS.field, Asks.OPERATOR, Asks.OPERATOR)], goto=Table.ALONE_EGRESS),
    Table.ALONE_EGRESS: instructions([set_field(ASKS.field, Asks.SENDER, Asks.SENDER)], goto=Table.LOCAL),
    Table.ALONE_INGRESS: instructions([set_field(ASKS.field, Asks.RECEIVER, Asks.RECEIVER)], goto=Table.OUTPUT),
}
"""By table: what a rule does that does not decide alone."""

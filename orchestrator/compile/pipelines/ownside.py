"""Rows by which tracked ingress lists ask for their own side before strangers.

An entry of Open vSwitch's cache holds the bits of a stranger's address that tell it from the rules that were asked. A
row is asked in stages: registers and the protocol first, addresses next, ports last; where no row of a shape has what
an early stage asks for, later ones are not looked at. Both addresses are one stage, and prefixes of sources are
tracked for a table as a whole. So a list that names sources had an entry for each group of strangers, also for
packets to an address and port of which no rule names a source.

Here the own side of the packet that opened a connection, its destination address and port, is copied into registers
before the list is asked, and rows that name a source ask for these copies. Where no rule names a source for this
address and port, nothing of the source is looked at: all strangers share the entries.

    receiver_ports ─ copy address and port ─▶ ingress: rows that name sources ask for the copies, all others as before

A deny that asked for a copy which nobody made would be passed by. So the copies are made of each packet that the list
is asked about, an ICMP error about a connection included (`read_field`), each time that it is asked.

What it costs: an entry holds the whole destination address and port. So only lists that name sources together with
destinations or ports have these rows, and packets on whose way no list is asked are not copied. A row that names a
source and nothing of the own side is asked as before. A row decides the same whether it asks for the copy or for the
field itself, so one list has rows of both kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from operator import attrgetter, is_not

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, read_field
from orchestrator.compile.openflow.oxm import IPV4, IPV6, PACKET_REGISTERS, Term
from orchestrator.compile.openflow.tracking import State
from orchestrator.compile.pipelines.host import (
    DESTINATION_TENANT,
    FIRST_DESTINATION,
    FIRST_PORT,
    OPERATOR_PERMIT,
    REPLY,
    Table,
)
from orchestrator.policy.addresses import ANY
from orchestrator.policy.model import Acl, Direction, ReturnTraffic, Rule, Tenant
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.program.flows import Flow
from orchestrator.program.program import Tier

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
_PRIORITY = 20
"""Above the rows that read ports of packets whose connection is not known yet."""
_FIRST = FIRST_DESTINATION[0].field.number // 2
"""The packet register in which the copies begin."""
_COPIES = 24
"""How many bytes of registers hold copies."""
_PORT_AT = 4 * (FIRST_PORT.field.number - FIRST_DESTINATION[0].field.number) + 2
"""Where among them the port is."""
_ONES = b"\xff" * 8
_HEADERS = [
    (each.header.to_bytes(4, "big"), each.masked_header.to_bytes(4, "big"))
    for each in PACKET_REGISTERS[_FIRST : _FIRST + _COPIES // 8]
]
"""Of the packet registers that hold copies, without a mask and with one."""
_SOURCE = attrgetter("source")


def copies_own_side(tenant: Tenant, returns: ReturnTraffic) -> bool:
    """Return whether the own side is copied before a tenant's ingress list is asked."""
    return returns is ReturnTraffic.TRACKED and names_both_sides(tenant.acl)


def names_both_sides(acl: Acl) -> bool:
    """Return whether an ingress rule names sources together with destinations or ports."""
    return any(acl.listed.facts(_have_one_of_both))


def _have_one_of_both(rules: tuple[Rule, ...]) -> bool:
    if not any(map(is_not, map(_SOURCE, rules), repeat(ANY))):  # of each rule of a new list, so in C
        return False
    return any(map(_names_both, rules))


def _names_both(rule: Rule) -> bool:
    names_own = not rule.destination.is_any or rule.destination_ports != EVERY_PORT
    return rule.direction is Direction.INGRESS and not rule.source.is_any and names_own


def own_side_rows(tenant: Tenant) -> Iterator[Flow]:
    """Yield the rows that copy the own side of the packet that opened a connection.

    Not before lists are asked: on a reply's first pass, and where the operator has decided.
    """
    valid = int(State.TRACKED), int(State.TRACKED | State.INVALID)
    parts = [register.field for register in FIRST_DESTINATION]
    of_version = {
        IPV4: [read_field(oxm.CT_NW_DST, parts[0], bits=32)],
        IPV6: [
            read_field(oxm.CT_IPV6_DST, part, bits=32, source_at=96 - 32 * place) for place, part in enumerate(parts)
        ],
    }
    for version, copies in of_version.items():
        terms = [
            Term(DESTINATION_TENANT.field, tenant.number),
            Term(OPERATOR_PERMIT.field, 0),
            Term(REPLY.field, 0, 1),
            Term(oxm.ETH_TYPE, version),
            Term(oxm.CT_STATE, *valid),
        ]
        doing = instructions([*copies, read_field(oxm.CT_TP_DST, FIRST_PORT.field, bits=16)], goto=Table.INGRESS)
        yield Flow(Table.RECEIVER_PORTS, _PRIORITY, oxm.pack(terms), doing, _STRUCTURE, tenant.number)


def ask_copies(address: bytes, port: bytes) -> bytes:
    """Return the match of copies for a destination address's and a port's terms (empty: none)."""
    values, masks = bytearray(_COPIES), bytearray(_COPIES)
    for term, at in ((address, 0), (port, _PORT_AT)):
        size = term[3] >> (term[2] & 1) if term else 0
        values[at : at + size] = term[4 : 4 + size]
        masks[at : at + size] = term[4 + size :] or b"\xff" * size
    found: list[bytes] = []
    for at, (plain, masked) in enumerate(_HEADERS):
        value, mask = bytes(values[8 * at : 8 * at + 8]), bytes(masks[8 * at : 8 * at + 8])
        if any(mask):
            found += [plain, value] if mask == _ONES else [masked, value, mask]
    return b"".join(found)

"""Copies of the destination of the packet that opened a connection.

Rows of an ingress list that name a source ask for these copies in place of the connection's own fields. Read as if they
asked for the fields, they are rows as all others are, if the copies are what they must be:

    reg8; reg8 to reg11        ct_nw_dst; ct_ipv6_dst
    reg12, lower 16 bits       ct_tp_dst

Two rows of the tenant in `receiver_ports` make them, one for each IP version, written here from ovs-fields(7) and
docs/pipeline.md. A tenant has both or none, and nothing else of anybody goes before them there. A tenant without them
has no row that asks for copies: it would ask for zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.equivalence.chain import apply_actions, goto
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import NotEquivalent
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

_STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
_HIGHEST_READING = 10
"""The priority of the rows that read ports of packets: they decide nothing."""
_ADDRESSES = {0x0800: (121, 4), 0x86DD: (123, 16)}
"""By Ethernet type: number and bytes of the field of connections that is copied."""
_PORT_FIELD = 125
_SIZES = {121: 4, 123: 16, _PORT_FIELD: 2}


class Copied(NamedTuple):
    """A connection's field that a row asks for by its copy."""

    number: int
    value: bytes
    mask: bytes


def read_copies(registers: Mapping[int, tuple[bytes, bytes]], version: int) -> list[Copied]:
    """Return the fields that packet registers 4 to 6 hold copies of, if any."""
    values, masks = (b"".join(registers.get(number, _NOTHING)[side] for number in range(4, 7)) for side in (0, 1))
    known = _ADDRESSES.get(version)
    if known is None or len(values) != len(masks) or len(masks) != 24:
        return []
    number, size = known
    if any(masks[size:18]) or any(masks[20:]) or any(value & ~mask for value, mask in zip(values, masks, strict=True)):
        return []
    found = []
    if any(masks[:size]):
        found.append(Copied(number, values[:size], masks[:size]))
    if any(masks[18:20]):
        found.append(Copied(_PORT_FIELD, values[18:20], masks[18:20]))
    return found


_NOTHING = bytes(8), bytes(8)


def find_copying(flows: FlowTable) -> frozenset[int]:
    """Return the tenants whose packets have copies. Raises NotEquivalent where rows would make others."""
    here = (flows.table == Table.RECEIVER_PORTS) & (flows.priority > _HIGHEST_READING)
    by_tenant: dict[int, list[Flow]] = {}
    for place in np.flatnonzero(here).tolist():
        by_tenant.setdefault(int(flows.tenant[place]), []).append(flows.row(place))
    for tenant, rows in by_tenant.items():
        wanted = _expected_rows(tenant)
        if set(rows) != wanted or len(rows) != len(wanted):
            raise NotEquivalent(f"the rows that copy what tenant {tenant} is asked for are not what they must be")
    return frozenset(by_tenant)


def touches_copies(flows: FlowTable) -> set[int]:
    """Return the tenants of whom some rows make copies."""
    here = (flows.table == Table.RECEIVER_PORTS) & (flows.priority > _HIGHEST_READING)
    return set(flows.tenant[here].tolist())


def check_copies(asking: Set[int], flows: FlowTable) -> None:
    """Refuse tenants that ask for copies which no row of `flows` makes. Raises NotEquivalent."""
    missing = asking - find_copying(flows)
    if missing:
        raise NotEquivalent(f"rows of tenant {min(missing)} ask for copies that no row makes")


def _expected_rows(tenant: int) -> set[Flow]:
    """Return the rows that copy the destination of a tenant's first packets."""
    port = _copy(_PORT_FIELD, 12, 16, 0)
    addresses = {
        0x0800: (_copy(121, 8, 32, 0),),
        0x86DD: tuple(_copy(123, 8 + place, 32, 96 - 32 * place) for place in range(4)),
    }
    rows = set()
    for version, copies in addresses.items():
        match = (
            struct.pack(">HBBH", 0x8000, 5 << 1, 2, version)
            + _registers(0, tenant, 0xFFFFFFFF)
            + _registers(1, 0, 0xFFFFFFFF)
            + _registers(3, 0, 1 << 32)
            + struct.pack(">HBBII", 0x0001, 105 << 1 | 1, 8, 0x20, 0x30)
        )
        does = apply_actions(*copies, port) + goto(Table.INGRESS)
        rows.add(Flow(Table.RECEIVER_PORTS, 20, match, does, _STRUCTURE, tenant))
    return rows


def _registers(number: int, value: int, mask: int) -> bytes:
    """A match of bits of two registers, as one packet register."""
    return struct.pack(">HBBQQ", 0x8001, number << 1 | 1, 16, value, mask)


def _copy(field: int, register: int, bits: int, begin: int) -> bytes:
    """The actions that push a connection's bits and pop them into a register (ovs-actions(7))."""
    return b"".join(
        struct.pack(">HHIHHHBBH6x", 0xFFFF, 24, 0x2320, kind, at, 1, number << 1, size, bits)
        for kind, at, number, size in ((27, begin, field, _SIZES[field]), (28, 0, register, 4))
    )

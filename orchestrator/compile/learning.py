"""Flows that a switch writes itself while packets pass: the Nicira action `learn`, as Open vSwitch writes it back.

    ┌ head: type, length, vendor, subtype, times, priority, cookie, flags, table, times after FIN ┐┌ spec ┐┌ spec ┐ ...

A spec matches a field of the learned flow against a constant, or against what the packet has in some field, or it has
the learned flow write a constant into a register. Fields are named by their NXM headers, the older form that Open
vSwitch uses here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orchestrator.compile.oxm import Field
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import TCP

_EXPERIMENTER, _NICIRA, _LEARN = 0xFFFF, 0x00002320, 16
_CONSTANT, _WRITES = 0x2000, 0x0800
_ETH_TYPE, _IP_PROTO, _TCP_SRC, _TCP_DST = 0x00000602, 0x00000C01, 0x00001202, 0x00001402
_IPV4, _IPV6 = 0x0800, 0x86DD
_ADDRESSES = {Family.IPV4: (_IPV4, 0x00000E04, 0x00001004, 32), Family.IPV6: (_IPV6, 0x00012610, 0x00012810, 128)}


@dataclass(frozen=True, slots=True)
class Learned:
    """Where and how learned flows stand; `idle_s` after their last packet they go, `closed_s` after a FIN."""

    table: int
    priority: int
    cookie: int
    idle_s: int
    closed_s: int


def learn_connection(family: Family, how: Learned, register: Field, value: int) -> tuple[bytes, bytes]:
    """For the TCP connection of the packet under way, one action for each direction: a flow that writes a value into a
    register. To be used only where the match says TCP over this IP version."""
    kind, source, destination, bits = _ADDRESSES[family]
    fixed = _matches_constant(_ETH_TYPE, 16, kind) + _matches_constant(_IP_PROTO, 8, TCP)
    written = _writes_constant(register.header, value)
    same = (
        _matches_field(bits, source, source) + _matches_field(bits, destination, destination)
        + _matches_field(16, _TCP_SRC, _TCP_SRC) + _matches_field(16, _TCP_DST, _TCP_DST)
    )  # fmt: skip
    other = (
        _matches_field(bits, destination, source) + _matches_field(bits, source, destination)
        + _matches_field(16, _TCP_DST, _TCP_SRC) + _matches_field(16, _TCP_SRC, _TCP_DST)
    )  # fmt: skip
    return _learn(how, fixed + same + written), _learn(how, fixed + other + written)


def _learn(how: Learned, specs: bytes) -> bytes:
    head = struct.pack(
        ">IHHHHQHBxHH",
        *(_NICIRA, _LEARN, how.idle_s, 0, how.priority, how.cookie, 0, how.table, how.closed_s, 0),
    )
    length = (4 + len(head) + len(specs) + 7) // 8 * 8
    return (struct.pack(">HH", _EXPERIMENTER, length) + head + specs).ljust(length, b"\0")


def _matches_constant(field: int, bits: int, value: int) -> bytes:
    size = (bits + 15) // 16 * 2
    return struct.pack(">H", _CONSTANT | bits) + value.to_bytes(size, "big") + struct.pack(">IH", field, 0)


def _matches_field(bits: int, of_packet: int, of_flow: int) -> bytes:
    return struct.pack(">HIHIH", bits, of_packet, 0, of_flow, 0)


def _writes_constant(register: int, value: int) -> bytes:
    return struct.pack(">HIIH", _CONSTANT | _WRITES | 32, value, register, 0)

"""Packets as columns: what a policy can look at, for millions of them."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet


class Unread(enum.IntEnum):
    """Why a frame is not decided.

    Nothing is guessed: it counts as neither permitted nor denied.
    """

    READ = 0
    NOT_IP = 1
    """Another protocol above the link: ARP, LLDP, MPLS, PPPoE, ..."""
    CUT_OFF = 2
    """The capture keeps too little of it: the snapshot length ended before the ports."""
    BROKEN = 3
    """Its headers contradict one another, or it ends before its own header does."""
    OTHER_LINK = 4
    """Of a kind of link that is not read here."""
    UNSAID = 5
    """Of a flow record that does not say what a rule asks: TCP flags, DSCP, or whether it is of later fragments."""


FLAGS, FRAGMENT, SERVICE = 0x10, 0x20, 0x40
"""Bits of `unread`: what a flow record does not say of its packets. DSCP is the last."""

NOT_SAID = {"tcp_flags": FLAGS, "dscp": SERVICE}
"""The bits for fields of which a record says nothing."""

REASON = 0x0F
"""The bits of `unread` that are a number of `Unread`."""

Packets = npt.NDArray[Any]
"""Records of PACKET."""

ADDRESS = (np.uint64, 2)

PACKET = np.dtype(
    [
        ("source", *ADDRESS), ("destination", *ADDRESS), ("source_port", np.uint16), ("destination_port", np.uint16),
        ("protocol", np.uint8), ("family", np.uint8), ("icmp_type", np.uint8), ("icmp_code", np.uint8),
        ("tcp_flags", np.uint8), ("later", np.uint8), ("unread", np.uint8), ("dscp", np.uint8),
        ("length", np.uint32),
    ]
)  # fmt: skip
"""A packet in 48 bytes, as `_native/packet.h` has it.

Addresses are upper and lower half, left-aligned in 128 bits as in a `RuleTable` (an IPv4 address in the upper 32). The
fields are those of `Packet`, zero where a packet has none. `unread` is a number of `Unread`, in flow records also bits
of what they do not say; `length` is that of its frame on the wire.
"""

SEEN = 44
"""So many bytes of a record say which packet it is; the rest says how long it was."""

_HALF = (1 << 64) - 1


def halves(family: Family, address: int) -> tuple[int, int]:
    """An address left-aligned in 128 bits, in two halves."""
    aligned = address << (128 - family.bits)
    return aligned >> 64, aligned & _HALF


def join_halves(family: Family, upper: int, lower: int) -> int:
    """The address that two halves say."""
    return (upper << 64 | lower) >> (128 - family.bits)


def record(packet: Packet, size: int = 0) -> tuple[Any, ...]:
    """A packet as a record."""
    return (
        halves(packet.family, packet.source), halves(packet.family, packet.destination),
        packet.source_port, packet.destination_port, packet.protocol, packet.family.value, packet.icmp_type,
        packet.icmp_code, packet.tcp_flags, packet.later_fragment, int(Unread.READ), packet.dscp, size,
    )  # fmt: skip


def packet_of(found: Any) -> Packet:
    """The packet of a record that was read."""
    family = Family(int(found["family"]))
    return Packet(
        family=family,
        source=join_halves(family, *map(int, found["source"])),
        destination=join_halves(family, *map(int, found["destination"])),
        protocol=int(found["protocol"]),
        source_port=int(found["source_port"]),
        destination_port=int(found["destination_port"]),
        icmp_type=int(found["icmp_type"]),
        icmp_code=int(found["icmp_code"]),
        tcp_flags=int(found["tcp_flags"]),
        dscp=int(found["dscp"]),
        later_fragment=bool(found["later"]),
    )

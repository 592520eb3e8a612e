"""OpenFlow eXtensible Match (OXM): our fields, and their canonical form as bytes.

A match is a string of TLVs (type, length, value). The header of each is 32 bits:

     31          16 15       9 8 7          0
    ┌──────────────┬──────────┬─┬────────────┐
    │    class     │  field   │M│   length   │   M: a mask follows the value; length covers both
    └──────────────┴──────────┴─┴────────────┘

The same match can be written in many orders. A program holds the one that Open vSwitch itself writes in OpenFlow 1.5
flow descriptions (found by asking version 3.1, held by a test against the real switch), so that what was compiled
compares byte for byte with what is read back:

* fields come in the order of `FIELDS`;
* a mask of all ones is left out; a field whose mask is zero is left out altogether; bits outside the mask are zero;
* 32-bit registers are written in pairs, as OpenFlow 1.5 packet registers: reg0 is the upper and reg1 the lower half of
  packet register 0, and so on. Matching one of the two gives a masked packet register.

`Term` is one field's part of a match; `pack` and `unpack` go between terms and bytes. Rules go the faster way of
`openflow/encoder.py`, which takes headers and order from here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.errors import BadInput

_BASIC, _NICIRA_1, _PACKET_REGISTERS = 0x8000, 0x0001, 0x8001
_EXTENDED_OF = 0x1000
MASKED = 0x100
"""The bit of a header that says that a mask follows."""


@dataclass(frozen=True, slots=True)
class Field:
    """A match field: its OXM class and number, and its size in bytes."""

    name: str
    oxm_class: int
    number: int
    size: int

    @property
    def header(self) -> int:
        """The 32-bit header of the field without a mask."""
        return self.oxm_class << 16 | self.number << 9 | self.size

    @property
    def masked_header(self) -> int:
        return self.header + MASKED + self.size

    @property
    def ones(self) -> int:
        """The mask that looks at every bit."""
        return (1 << 8 * self.size) - 1


CONJ_ID = Field("conj_id", _NICIRA_1, 37, 4)
IN_PORT = Field("in_port", _BASIC, 0, 4)
ETH_SRC = Field("eth_src", _BASIC, 4, 6)
ETH_DST = Field("eth_dst", _BASIC, 3, 6)
ETH_TYPE = Field("eth_type", _BASIC, 5, 2)
VLAN_VID = Field("vlan_vid", _BASIC, 6, 2)
IPV4_SRC = Field("ipv4_src", _BASIC, 11, 4)
IPV4_DST = Field("ipv4_dst", _BASIC, 12, 4)
IPV6_SRC = Field("ipv6_src", _BASIC, 26, 16)
IPV6_DST = Field("ipv6_dst", _BASIC, 27, 16)
IP_FRAG = Field("ip_frag", _NICIRA_1, 26, 1)
IP_DSCP = Field("ip_dscp", _BASIC, 8, 1)
IP_PROTO = Field("ip_proto", _BASIC, 10, 1)
TCP_SRC = Field("tcp_src", _BASIC, 13, 2)
TCP_DST = Field("tcp_dst", _BASIC, 14, 2)
TCP_FLAGS = Field("tcp_flags", _BASIC, 42, 2)
UDP_SRC = Field("udp_src", _BASIC, 15, 2)
UDP_DST = Field("udp_dst", _BASIC, 16, 2)
SCTP_SRC = Field("sctp_src", _BASIC, 17, 2)
SCTP_DST = Field("sctp_dst", _BASIC, 18, 2)
ICMP_TYPE = Field("icmp_type", _BASIC, 19, 1)
ICMP_CODE = Field("icmp_code", _BASIC, 20, 1)
ICMPV6_TYPE = Field("icmpv6_type", _BASIC, 29, 1)
ICMPV6_CODE = Field("icmpv6_code", _BASIC, 30, 1)
ND_TARGET = Field("nd_target", _BASIC, 31, 16)
ND_SLL = Field("nd_sll", _BASIC, 32, 6)
ND_TLL = Field("nd_tll", _BASIC, 33, 6)
ARP_OP = Field("arp_op", _BASIC, 21, 2)
ARP_SPA = Field("arp_spa", _BASIC, 22, 4)
ARP_TPA = Field("arp_tpa", _BASIC, 23, 4)
ARP_SHA = Field("arp_sha", _BASIC, 24, 6)
ARP_THA = Field("arp_tha", _BASIC, 25, 6)

REGISTERS = tuple(Field(f"reg{number}", _NICIRA_1, number, 4) for number in range(16))
"""Nicira registers: actions write them one by one; a match shows them as halves of `PACKET_REGISTERS`."""

PACKET_REGISTERS = tuple(Field(f"packet_reg{number}", _PACKET_REGISTERS, number, 8) for number in range(8))

CT_MARK = Field("ct_mark", _NICIRA_1, 107, 4)
"""The mark of the packet's connection, where it was looked up (`tracking.py`); 0 before."""

CT_STATE = Field("ct_state", _NICIRA_1, 105, 4)
"""The state of the packet's connection, as bits of `tracking.State`; 0 before it was looked up."""

CT_NW_SRC = Field("ct_nw_src", _NICIRA_1, 120, 4)
CT_NW_DST = Field("ct_nw_dst", _NICIRA_1, 121, 4)
CT_IPV6_SRC = Field("ct_ipv6_src", _NICIRA_1, 122, 16)
CT_IPV6_DST = Field("ct_ipv6_dst", _NICIRA_1, 123, 16)
CT_NW_PROTO = Field("ct_nw_proto", _NICIRA_1, 119, 1)
CT_TP_SRC = Field("ct_tp_src", _NICIRA_1, 124, 2)
CT_TP_DST = Field("ct_tp_dst", _NICIRA_1, 125, 2)
"""The packet that opened the connection, whichever way this one goes. Of ICMP the two ports are type and code."""

PKT_MARK = Field("pkt_mark", _NICIRA_1, 33, 4)
"""The mark that the switch's machine has set on a packet; 0 in a switch that forwards in the daemon."""

ND_RESERVED = Field("nd_reserved", _EXTENDED_OF, 1, 4)
ND_OPTIONS_TYPE = Field("nd_options_type", _EXTENDED_OF, 2, 1)
"""These two are only ever set, to make a neighbour advertisement."""

HEADERS = (
    IPV4_SRC,
    IPV4_DST,
    IPV6_SRC,
    IPV6_DST,
    IP_FRAG,
    IP_DSCP,
    IP_PROTO,
    TCP_SRC,
    TCP_DST,
    TCP_FLAGS,
    UDP_SRC,
    UDP_DST,
    SCTP_SRC,
    SCTP_DST,
    ICMP_TYPE,
    ICMP_CODE,
    ICMPV6_TYPE,
    ICMPV6_CODE,
)
"""The fields of IP and what is behind it that rules look at, in the canonical order."""

FIELDS = (
    CONJ_ID,
    IN_PORT,
    ETH_SRC,
    ETH_DST,
    ETH_TYPE,
    VLAN_VID,
    *HEADERS,
    ND_TARGET,
    ND_SLL,
    ND_TLL,
    ARP_OP,
    ARP_SPA,
    ARP_TPA,
    ARP_SHA,
    ARP_THA,
    *PACKET_REGISTERS,
    PKT_MARK,
    CT_STATE,
    CT_MARK,
    CT_NW_SRC,
    CT_IPV6_SRC,
    CT_NW_DST,
    CT_IPV6_DST,
    CT_NW_PROTO,
    CT_TP_SRC,
    CT_TP_DST,
)
"""Every field a match may hold, in the canonical order."""

_RANK = {field: rank for rank, field in enumerate(FIELDS)}
_BY_TYPE = {(field.oxm_class, field.number): field for field in FIELDS}

IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
"""Ethernet types."""

VLAN_PRESENT = 0x1000
"""The bit of `VLAN_VID` that says that there is a tag at all."""

FRAGMENT_FIRST, FRAGMENT_LATER, NOT_LATER_MASK, ANY_FRAGMENT = 1, 3, 2, 1
"""Values of `IP_FRAG` (bit 0: a fragment, bit 1: with an offset). Whole packets and first fragments: 0 under mask 2.
All fragments: 1 under mask 1."""


@dataclass(frozen=True, slots=True)
class Term:
    """A match on one field.

    `mask` None: every bit.
    """

    field: Field
    value: int
    mask: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.value <= self.field.ones or not 0 <= self.full_mask <= self.field.ones:
            raise BadInput(f"does not fit into {self.field.size} bytes", place=self.field.name)
        if self.value & ~self.full_mask:
            raise BadInput("has value bits that its mask does not look at", place=self.field.name)
        object.__setattr__(self, "mask", None if self.mask == self.field.ones else self.mask)

    @property
    def full_mask(self) -> int:
        return self.field.ones if self.mask is None else self.mask

    def pack(self) -> bytes:
        """Encode the term as a TLV of OpenFlow's match."""
        size = self.field.size
        if self.mask is None:
            return self.field.header.to_bytes(4, "big") + self.value.to_bytes(size, "big")
        header = self.field.masked_header.to_bytes(4, "big")
        return header + self.value.to_bytes(size, "big") + self.mask.to_bytes(size, "big")


def pack(terms: Iterable[Term]) -> bytes:
    """Return the canonical bytes of a match.

    Raises BadInput if two terms name the same field.
    """
    plain = _with_packet_registers(tuple(term for term in terms if term.full_mask))
    ranked = sorted(plain, key=lambda term: _RANK[term.field])
    for before, after in pairwise(ranked):
        if before.field is after.field:
            raise BadInput("is matched twice", place=after.field.name)
    return b"".join(term.pack() for term in ranked)


def unpack(match: bytes) -> tuple[Term, ...]:
    """Return the terms of canonical match bytes, in order.

    Registers one by one. Raises BadInput for anything else.
    """
    terms: list[Term] = []
    rest = match
    while rest:
        if len(rest) < 4:
            raise BadInput("the match ends within a field's header")
        (header,) = struct.unpack_from(">I", rest)
        field = _BY_TYPE.get((header >> 16, header >> 9 & 0x7F))
        if field is None or header not in (field.header, field.masked_header):
            raise BadInput(f"{header:#010x} is not the header of a field we know")
        body, rest = rest[4 : 4 + (header & 0xFF)], rest[4 + (header & 0xFF) :]
        if len(body) < (header & 0xFF):
            raise BadInput("the match ends within a value", place=field.name)
        mask = int.from_bytes(body[field.size :], "big") if header & MASKED else None
        terms += _split(Term(field, int.from_bytes(body[: field.size], "big"), mask))
    if pack(terms) != match:
        raise BadInput("the match is not in canonical form")
    return tuple(terms)


def _with_packet_registers(terms: tuple[Term, ...]) -> list[Term]:
    """The same terms, single registers put together in pairs."""
    plain = [term for term in terms if term.field not in REGISTERS]
    halves: dict[int, tuple[int, int]] = {}
    for term in terms:
        if term.field in REGISTERS:
            number, lower = divmod(term.field.number, 2)
            shift = 0 if lower else 32
            value, mask = halves.get(number, (0, 0))
            if mask >> shift & 0xFFFFFFFF:
                raise BadInput("is matched twice", place=term.field.name)
            halves[number] = value | term.value << shift, mask | term.full_mask << shift
    return plain + [Term(PACKET_REGISTERS[number], *half) for number, half in halves.items()]


def _split(term: Term) -> list[Term]:
    """A packet register as its single registers; any other term as it is."""
    if term.field not in PACKET_REGISTERS:
        return [term]
    number = term.field.number * 2
    return [
        Term(REGISTERS[number + lower], term.value >> shift & 0xFFFFFFFF, term.full_mask >> shift & 0xFFFFFFFF)
        for lower, shift in ((0, 32), (1, 0))
        if term.full_mask >> shift & 0xFFFFFFFF
    ]


def stamp_match(digest: bytes) -> bytes:
    """Return the stamp flow's match: the 16-byte digest in reg0 to reg3.

    Raises BadInput for one of another length.
    """
    if len(digest) != 16:
        raise BadInput(f"a digest has 16 bytes, not {len(digest)}")
    return _STAMP_HEADERS[0] + digest[:8] + _STAMP_HEADERS[1] + digest[8:]


_STAMP_HEADERS = [register.header.to_bytes(4, "big") for register in PACKET_REGISTERS[:2]]

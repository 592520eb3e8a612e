"""Match fields of the fake switch: read from bytes, checked, written in Open vSwitch's order.

This table is deliberately not the compiler's. It comes from the standard (section 7.2.3) and from Open vSwitch's
documentation (ovs-fields(7)), so that a wrong header, mask or prerequisite on one side shows against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason

OPENFLOW, NICIRA, PACKET_REGISTER, EXTENSION = 0x8000, 0x0001, 0x8001, 0x1000
"""OXM classes."""

REGISTER_BITS = 32


@dataclass(frozen=True, slots=True)
class Need:
    """A field's required values for another field; an absent field counts as 0."""

    field: str
    values: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of `size` bytes with `bits` value bits; `needs` are its prerequisites.

    `highest` is the largest value, where that is less than the bits allow. Of a field that `trims`, masks forget about
    bits that its value does not have; others keep them, so that a mask of all the value's bits is not yet no mask.
    `of_connection`: a match may ask for it only where it asks for packets of a connection.
    """

    name: str
    oxm_class: int
    number: int
    size: int
    bits: int
    maskable: bool = False
    needs: tuple[Need, ...] = ()
    highest: int | None = None
    trims: bool = False
    of_connection: bool = False

    def can_be(self, value: int) -> bool:
        """Whether the field can have a value at all."""
        return value <= (self.ones if self.highest is None else self.highest)

    @property
    def ones(self) -> int:
        """Every bit of the value."""
        return (1 << self.bits) - 1

    @property
    def whole(self) -> int:
        """Every bit of the bytes: the mask that is left out."""
        return (1 << 8 * self.size) - 1


@dataclass(frozen=True, slots=True)
class Bits:
    """A match on a field: `value` under `mask`."""

    value: int
    mask: int


Match = Mapping[str, Bits]
"""Field name -> bits. Registers stand one by one, however they were written."""


def _make_need(field: str, *values: int) -> Need:
    return Need(field, frozenset(values))


_ARP = (_make_need("eth_type", 0x0806, 0x8035),)
_IPV4 = (_make_need("eth_type", 0x0800),)
_IPV6 = (_make_need("eth_type", 0x86DD),)
IP_TYPES = (0x0800, 0x86DD)
_IP = (_make_need("eth_type", *IP_TYPES),)
_NOT_LATER = _make_need("ip_frag", 0, 1)
_TCP, _UDP, _SCTP = ((*_IP, _make_need("ip_proto", number), _NOT_LATER) for number in (6, 17, 132))
_ICMP = (*_IPV4, _make_need("ip_proto", 1))
_ICMPV6 = (*_IPV6, _make_need("ip_proto", 58))
_ND = (*_ICMPV6, _make_need("icmpv6_type", 135, 136), _make_need("icmpv6_code", 0))
_SOLICITED = (*_ND, _make_need("icmpv6_type", 135))
_ADVERTISED = (*_ND, _make_need("icmpv6_type", 136))

FIELDS = (
    Field("conj_id", NICIRA, 37, 4, 32),
    Field("in_port", OPENFLOW, 0, 4, 32),
    Field("eth_src", OPENFLOW, 4, 6, 48, True),
    Field("eth_dst", OPENFLOW, 3, 6, 48, True),
    Field("eth_type", OPENFLOW, 5, 2, 16),
    Field("vlan_vid", OPENFLOW, 6, 2, 13, True, trims=True),
    Field("ipv4_src", OPENFLOW, 11, 4, 32, True, _IPV4),
    Field("ipv4_dst", OPENFLOW, 12, 4, 32, True, _IPV4),
    Field("ipv6_src", OPENFLOW, 26, 16, 128, True, _IPV6),
    Field("ipv6_dst", OPENFLOW, 27, 16, 128, True, _IPV6),
    Field("ip_frag", NICIRA, 26, 1, 2, True, _IP, trims=True),
    Field("ip_dscp", OPENFLOW, 8, 1, 6, False, _IP),
    Field("ip_ecn", OPENFLOW, 9, 1, 2, False, _IP),
    Field("ip_ttl", NICIRA, 29, 1, 8, False, _IP),
    Field("ipv6_label", OPENFLOW, 28, 4, 20, True, _IPV6, trims=True),
    Field("ip_proto", OPENFLOW, 10, 1, 8, False, _IP),
    Field("tcp_src", OPENFLOW, 13, 2, 16, True, _TCP),
    Field("tcp_dst", OPENFLOW, 14, 2, 16, True, _TCP),
    Field("tcp_flags", OPENFLOW, 42, 2, 12, True, _TCP),
    Field("udp_src", OPENFLOW, 15, 2, 16, True, _UDP),
    Field("udp_dst", OPENFLOW, 16, 2, 16, True, _UDP),
    Field("sctp_src", OPENFLOW, 17, 2, 16, True, _SCTP),
    Field("sctp_dst", OPENFLOW, 18, 2, 16, True, _SCTP),
    Field("icmp_type", OPENFLOW, 19, 1, 8, False, _ICMP),
    Field("icmp_code", OPENFLOW, 20, 1, 8, False, _ICMP),
    Field("icmpv6_type", OPENFLOW, 29, 1, 8, False, _ICMPV6),
    Field("icmpv6_code", OPENFLOW, 30, 1, 8, False, _ICMPV6),
    Field("nd_reserved", EXTENSION, 1, 4, 32, False, _ND),
    Field("nd_target", OPENFLOW, 31, 16, 128, True, _ND),
    Field("nd_options_type", EXTENSION, 2, 1, 8, False, _ND),
    Field("nd_sll", OPENFLOW, 32, 6, 48, True, _SOLICITED),
    Field("nd_tll", OPENFLOW, 33, 6, 48, True, _ADVERTISED),
    Field("arp_op", OPENFLOW, 21, 2, 16, False, _ARP, 0xFF),
    Field("arp_spa", OPENFLOW, 22, 4, 32, True, _ARP),
    Field("arp_tpa", OPENFLOW, 23, 4, 32, True, _ARP),
    Field("arp_sha", OPENFLOW, 24, 6, 48, True, _ARP),
    Field("arp_tha", OPENFLOW, 25, 6, 48, True, _ARP),
    *(Field(f"packet_reg{number}", PACKET_REGISTER, number, 8, 64, True) for number in range(8)),
    Field("pkt_mark", NICIRA, 33, 4, 32, True),
    Field("ct_state", NICIRA, 105, 4, 8, True, highest=0xFF),
    Field("ct_mark", NICIRA, 107, 4, 32, True),
    Field("ct_nw_src", NICIRA, 120, 4, 32, True, of_connection=True),
    Field("ct_ipv6_src", NICIRA, 122, 16, 128, True, of_connection=True),
    Field("ct_nw_dst", NICIRA, 121, 4, 32, True, of_connection=True),
    Field("ct_ipv6_dst", NICIRA, 123, 16, 128, True, of_connection=True),
    Field("ct_nw_proto", NICIRA, 119, 1, 8, of_connection=True),
    Field("ct_tp_src", NICIRA, 124, 2, 16, True, of_connection=True),
    Field("ct_tp_dst", NICIRA, 125, 2, 16, True, of_connection=True),
    Field("metadata", OPENFLOW, 2, 8, 64, True),
)
"""In the order in which the switch writes a match."""

REGISTERS = tuple(Field(f"reg{number}", NICIRA, number, 4, REGISTER_BITS, True) for number in range(16))

_BY_TYPE = {(field.oxm_class, field.number): field for field in (*FIELDS, *REGISTERS)}
_RANK = {field: rank for rank, field in enumerate(FIELDS)}
BY_NAME: Mapping[str, Field] = {field.name: field for field in (*FIELDS, *REGISTERS)}
_UNKNOWN_PORTS = range(0xFF00, 0xFFFFFF00)
"""32-bit port numbers that name no port, be it an ordinary or a reserved one."""


def parts(field: Field, bits: Bits) -> list[tuple[str, Bits]]:
    """Return a packet register as its two registers, or another field as it is."""
    if field.oxm_class != PACKET_REGISTER:
        return [(field.name, bits)]
    low = (1 << REGISTER_BITS) - 1
    return [
        (f"reg{2 * field.number + half}", Bits(bits.value >> shift & low, bits.mask >> shift & low))
        for half, shift in ((0, REGISTER_BITS), (1, 0))
    ]


def read_header(data: bytes) -> tuple[Field, bool] | None:
    """Return the field that a 4-byte OXM header names, and whether a mask follows."""
    header = int.from_bytes(data[:4], "big")
    field = _BY_TYPE.get((header >> 16, header >> 9 & 0x7F))
    masked = bool(header & 0x100)
    if field is None or header & 0xFF != field.size * (2 if masked else 1):
        return None
    return field, masked


def read_match(data: bytes) -> Match:
    """Take OXM bytes apart as Open vSwitch does. Raises Complaint."""
    match: dict[str, Bits] = {}
    at = 0
    while at < len(data):
        if len(data) - at < 4 or len(data) - at - 4 < data[at + 3]:
            raise Complaint(Reason.BAD_MATCH_LENGTH)
        known = read_header(data[at:])
        if known is None:
            raise Complaint(Reason.BAD_FIELD)
        field, masked = known
        body = data[at + 4 : at + 4 + data[at + 3]]
        _add_match(match, field, _read_bits(field, body, masked))
        at += 4 + len(body)
    return match


def _read_bits(field: Field, body: bytes, masked: bool) -> Bits:
    value = int.from_bytes(body[: field.size], "big")
    mask = int.from_bytes(body[field.size :], "big") if masked else field.whole
    if value & ~mask:
        raise Complaint(Reason.BAD_WILDCARDS)
    if not field.maskable and mask not in (0, field.whole):
        raise Complaint(Reason.BAD_MASK)
    if not field.can_be(value) or (field.name == "in_port" and value in _UNKNOWN_PORTS):
        raise Complaint(Reason.BAD_VALUE)
    if field.name == "ct_state":
        mask &= field.ones  # and so it is never without one
    if field.trims:
        mask = field.whole if mask & field.ones == field.ones else mask & field.ones
    return Bits(value, mask)


def _add_match(match: dict[str, Bits], field: Field, bits: Bits) -> None:
    if not is_there(field, {name: each.value for name, each in match.items()}):
        raise Complaint(Reason.BAD_PREREQUISITE)
    if field.of_connection and not is_of_connection(match):
        raise Complaint(Reason.BAD_PREREQUISITE)
    split = parts(field, bits)
    if any(name in match for name, _ in split):
        raise Complaint(Reason.DUPLICATE_FIELD)
    match.update((name, part) for name, part in split if part.mask)


def is_of_connection(match: Match) -> bool:
    """Return whether a match asks for a state that only tracked packets have.

    Or for any state that is not invalid.
    """
    state = match.get("ct_state", Bits(0, 0))
    looked_up, invalid, of_connection = 0x20, 0x10, 0x01 | 0x02 | 0x04 | 0x08 | 0x40 | 0x80
    valid = state.value & looked_up and state.mask & invalid and not state.value & invalid
    return bool(state.value & of_connection or valid)


def is_of_one_version(match: Match) -> bool:
    """Whether a match asks for a connection's addresses only of its own IP version.

    The switch looks at that late.
    """
    version = match.get("eth_type", Bits(0, 0)).value
    needed = {"ct_nw": 0x0800, "ct_ip": 0x86DD}
    addresses = ("ct_nw_src", "ct_nw_dst", "ct_ipv6_src", "ct_ipv6_dst")
    return all(version == needed[name[:5]] for name in addresses if name in match)


def is_there(field: Field, values: Mapping[str, int]) -> bool:
    """Return whether a packet with these values, or a match's packets, have the field."""
    return all(values.get(need.field, 0) in need.values for need in field.needs)


def write_match(match: Match) -> bytes:
    """The bytes in which the switch describes a match."""
    values = {name: bits.value for name, bits in match.items()}
    found = _with_packet_registers(match)
    hidden = () if values.get("ct_nw_proto") else ("ct_nw_proto", "ct_tp_src", "ct_tp_dst")
    found = {field: bits for field, bits in found.items() if field.name not in hidden}
    shown = (field for field in found if not field.name.startswith("nd_") or is_there(field, values))
    return b"".join(_write_oxm(field, found[field]) for field in sorted(shown, key=_RANK.__getitem__))


def _with_packet_registers(match: Match) -> dict[Field, Bits]:
    """The fields of a match, registers put together in pairs again."""
    found: dict[Field, Bits] = {}
    for name, bits in match.items():
        if BY_NAME[name] not in REGISTERS:
            found[BY_NAME[name]] = bits
            continue
        whole, half = divmod(BY_NAME[name].number, 2)
        field, shift = BY_NAME[f"packet_reg{whole}"], 0 if half else REGISTER_BITS
        before = found.get(field, Bits(0, 0))
        found[field] = Bits(before.value | bits.value << shift, before.mask | bits.mask << shift)
    return found


def _write_oxm(field: Field, bits: Bits) -> bytes:
    exact = bits.mask == field.whole
    header = field.oxm_class << 16 | field.number << 9 | (0 if exact else 0x100) | field.size * (1 if exact else 2)
    data = header.to_bytes(4, "big") + bits.value.to_bytes(field.size, "big")
    return data if exact else data + bits.mask.to_bytes(field.size, "big")

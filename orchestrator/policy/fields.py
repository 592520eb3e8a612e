"""Packets, and match fields: what a rule can ask of a packet.

Each field is declared here once, and everything else reads it from here.

A field has one name in a packet, one attribute in a rule that asks for it, and one axis in a box of packet space:

    packet             rule                axis of a box       asks for          in the header of
    later_fragment     fragments           fragments           yes, or either    IP
    protocol           protocol            protocols           one number        IP
    icmp_type          icmp_type           icmp_types          one number        the IP version's own ICMP
    icmp_code          icmp_code           icmp_codes          one number        the IP version's own ICMP
    tcp_flags          flag_matches        tcp_flags           bits under masks  TCP
    dscp               dscp                dscp                a set of numbers  IP
    source             source              source              prefixes, groups  IP
    destination        destination         destination         prefixes, groups  IP
    source_port        source_ports        source_ports        ranges            TCP, UDP, SCTP
    destination_port   destination_ports   destination_ports   ranges            TCP, UDP, SCTP

`FIELDS` has them in the order of the axes of a box, which is the order in which a difference of two boxes is cut.

Two 16-bit *slots* hold the fields of the upper-layer header on most data planes: the source port or the ICMP type lies
in the first, the destination port or the ICMP code in the second. `slot` says so, and `SLOTS` has the fields of each.

Fields that rows of data planes ask for under masks share one 16-bit *word*, each with bits of its own: `shift` says
where they begin, and `WORD` has these fields.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType

from orchestrator.policy.addresses import ANY, Family
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP, WITH_PORTS


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields of a packet that a policy can look at.

    `protocol` is the upper-layer protocol, found behind IPv6 extension headers; an IPv6 later fragment has
    IPV6_FRAGMENT (44), for its upper layer cannot be known. Ports, ICMP and flags are zero where there are none. `dscp`
    are the six bits of an IP header that say how it is treated.
    """

    family: Family
    source: int
    destination: int
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    tcp_flags: int = 0
    dscp: int = 0
    later_fragment: bool = False


OWN_ICMP = {Family.IPV4: ICMP, Family.IPV6: ICMPV6}
"""The ICMP that an IP version has; a packet with the other's number has neither type nor code."""


class Kind(enum.Enum):
    """How a rule asks for a field.

    A box keeps the first two as spans, the others as bits.
    """

    PREFIXES = enum.auto()
    """`Addresses`: prefixes and groups of one IP version, or any."""
    RANGES = enum.auto()
    """Several `PortRange`; one of them holds the value."""
    NUMBER = enum.auto()
    """One number, or None for every number."""
    BITS = enum.auto()
    """Several `FlagMatch`; one of them holds. None of them: every value."""
    SET = enum.auto()
    """Some of at most 64 values, as a number: bit i is set where value i is asked for. None: every value."""
    LATER = enum.auto()
    """True for later fragments only, False for every packet."""


def _map_both(bits: int) -> Mapping[Family, int]:
    return MappingProxyType(dict.fromkeys(Family, bits))


def _map_shown(*values: int) -> Mapping[Family, tuple[int, ...]]:
    return MappingProxyType(dict.fromkeys(Family, values))


@dataclass(frozen=True, slots=True, eq=False)
class MatchField:
    """A match field. Two fields are the same only if they are the same object."""

    name: str
    """The attribute of a packet, which is also what documents call it."""
    attribute: str
    """The attribute of a rule."""
    axis: str
    """The attribute of a box."""
    kind: Kind
    bits: Mapping[Family, int]
    """The width in each IP version."""
    every: object
    """The attribute's value in a rule that does not look at the field."""
    carriers: Mapping[Family, frozenset[int]] | None = None
    """The upper-layer protocols whose header has the field; None: the IP header has it."""
    only: str = ""
    """The error where a rule asks for it without naming one of the carriers."""
    needs: MatchField | None = None
    """The field without which this one means nothing."""
    slot: int | None = None
    """Which of the two 16-bit words of the upper-layer header it lies in; None: in neither."""
    shift: int | None = None
    """Where its bits begin in the word of bits that rows ask for under masks; None: they are not in it."""
    is_maskable: bool = True
    """Whether a flow entry of OpenFlow may look at some of its bits; if not, it names one value, or does not look."""
    label: str = ""
    """The words before its values in a line for people."""
    shown: Mapping[Family, tuple[int, ...]] = field(default_factory=_map_shown)
    """The values that a reader knows, best first: a packet that is shown has one of them if it may."""

    @property
    def is_spans(self) -> bool:
        """Whether a box keeps the set of its values as spans, not as bits."""
        return self.kind in (Kind.PREFIXES, Kind.RANGES)

    def is_carried(self, family: Family, protocol: int, *, later: bool = False) -> bool:
        """Whether packets of an IP version and protocol have the field; `later`: their later fragments."""
        return self.carriers is None or (protocol in self.carriers[family] and not later)


_ADDRESS_BITS = MappingProxyType({family: family.bits for family in Family})
_KNOWN_ADDRESSES = MappingProxyType({Family.IPV4: (0xC0000201,), Family.IPV6: (0x20010DB8 << 96 | 1,)})
"""For documentation (RFC 5737, RFC 3849)."""
_WITH_PORTS = MappingProxyType(dict.fromkeys(Family, WITH_PORTS))
_ICMP = MappingProxyType({family: frozenset({protocol}) for family, protocol in OWN_ICMP.items()})
_TCP = MappingProxyType(dict.fromkeys(Family, frozenset({TCP})))
_PORTS_ONLY = "only tcp, udp and sctp have ports: name one of them as the protocol"
_ICMP_ONLY = "only icmp and icmpv6 have types and codes"

FRAGMENTS = MatchField("later_fragment", "fragments", "fragments", Kind.LATER, _map_both(1), every=False)
PROTOCOL = MatchField(
    "protocol", "protocol", "protocols", Kind.NUMBER, _map_both(8), every=None, shown=_map_shown(TCP, UDP, ICMP, ICMPV6)
)
ICMP_TYPE = MatchField(
    "icmp_type", "icmp_type", "icmp_types", Kind.NUMBER, _map_both(8), every=None, carriers=_ICMP, only=_ICMP_ONLY,
    slot=0, label="type",
)  # fmt: skip
ICMP_CODE = MatchField(
    "icmp_code", "icmp_code", "icmp_codes", Kind.NUMBER, _map_both(8), every=None, carriers=_ICMP, only=_ICMP_ONLY,
    needs=ICMP_TYPE, slot=1, label="code",
)  # fmt: skip
TCP_FLAGS = MatchField(
    "tcp_flags", "flag_matches", "tcp_flags", Kind.BITS, _map_both(8), every=(), carriers=_TCP,
    only="only tcp has flags: name tcp as the protocol", shift=0, shown=_map_shown(0x02, 0x10, 0x12, 0x04, 0x18),
)  # fmt: skip
DSCP_SHIFT = 8
"""How far above TCP flags it stands in the word of bits."""
DSCP = MatchField(
    "dscp", "dscp", "dscp", Kind.SET, _map_both(6), every=None, shift=DSCP_SHIFT, is_maskable=False, label="dscp"
)
SOURCE = MatchField("source", "source", "source", Kind.PREFIXES, _ADDRESS_BITS, every=ANY, shown=_KNOWN_ADDRESSES)
DESTINATION = MatchField(
    "destination", "destination", "destination", Kind.PREFIXES, _ADDRESS_BITS, every=ANY, shown=_KNOWN_ADDRESSES
)
SOURCE_PORT = MatchField(
    "source_port", "source_ports", "source_ports", Kind.RANGES, _map_both(16), every=EVERY_PORT, carriers=_WITH_PORTS,
    only=_PORTS_ONLY, slot=0, label="from port", shown=_map_shown(49152),
)  # fmt: skip
DESTINATION_PORT = MatchField(
    "destination_port", "destination_ports", "destination_ports", Kind.RANGES, _map_both(16), every=EVERY_PORT,
    carriers=_WITH_PORTS, only=_PORTS_ONLY, slot=1, label="to port", shown=_map_shown(80),
)  # fmt: skip

FIELDS = (
    FRAGMENTS, PROTOCOL, ICMP_TYPE, ICMP_CODE, TCP_FLAGS, DSCP, SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT,
)  # fmt: skip
"""Every field, in the order of the axes of a box: those that a box keeps as bits come first."""

DOCUMENT_ORDER = (
    SOURCE, DESTINATION, PROTOCOL, SOURCE_PORT, DESTINATION_PORT, ICMP_TYPE, ICMP_CODE, TCP_FLAGS, DSCP, FRAGMENTS,
)  # fmt: skip
"""Every field, in the order in which people and documents name them."""

CARRIED = tuple(each for each in FIELDS if each.carriers is not None)
"""The fields of upper-layer headers. Later fragments have none of them."""

NUMBERS = tuple(each for each in FIELDS if each.kind is Kind.NUMBER)
"""The fields that a rule asks for by one number."""

OF_ICMP = (ICMP_TYPE, ICMP_CODE)
"""The fields of an ICMP message; a rule, a box and a table of rules have what they ask of both as `icmp`."""

WORD = tuple(each for each in FIELDS if each.shift is not None)
"""The fields whose bits share the word that rows ask for under masks."""

WORD_BITS = sum(each.bits[Family.IPV4] for each in WORD)
"""How many bits of the word they have together."""

SLOTS = tuple(tuple(each for each in CARRIED if each.slot == slot) for slot in (0, 1))
"""The fields that share each of the two 16-bit words of the upper-layer header: no packet has two of one slot."""

BITS_AXES = tuple(each for each in FIELDS if not each.is_spans)
"""The fields whose axis of a box is kept as bits."""

SPAN_AXES = tuple(each for each in FIELDS if each.is_spans)
"""The fields whose axis of a box is kept as spans."""

BYTES = tuple(each for each in BITS_AXES if each.kind is not Kind.LATER)
"""The fields whose values are numbers of at most eight bits."""

_SLOT_VALUES = {
    family: {
        protocol: attrgetter(*(each.name for slot in SLOTS for each in slot if each.is_carried(family, protocol)))
        for protocol in (*WITH_PORTS, OWN_ICMP[family])
    }
    for family in Family
}


def slot_values(packet: Packet) -> tuple[int, int]:
    """Return the two 16-bit words of a packet's upper-layer header that `SLOTS` reads.

    They are zero where the header has none of these fields.
    """
    values = _SLOT_VALUES[packet.family].get(packet.protocol)
    return (0, 0) if values is None or packet.later_fragment else values(packet)

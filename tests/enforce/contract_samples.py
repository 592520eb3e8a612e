"""One small program and two frames for every kind of flow that our programs hold: what the contract suite tries.

A sample's flows lead its `hit` frame from vm1 to where `out` says, and do not lead its `miss` frame there. The last
flow is the one under test: only it is changed, counted, removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    IN_PORT,
    conjunction,
    copy_field,
    instructions,
    output,
    output_register,
    read_field,
    set_field,
)
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.openflow.tracking import State, begin, open_with, track
from orchestrator.enforce.drivers.openflow.frames import (
    ADVERTISEMENT,
    ARP,
    ARP_REPLY,
    ARP_REQUEST,
    HOP_BY_HOP,
    IPV4,
    IPV6,
    LATER_OFFSET,
    MORE_FRAGMENTS,
    SOLICITATION,
    SOURCE_LINK_ADDRESS,
    TARGET_LINK_ADDRESS,
    arp,
    ethernet,
    extension,
    fragment_header,
    icmp,
    ipv4,
    ipv6,
    link_address,
    neighbour,
    pseudo_v4,
    pseudo_v6,
    sctp,
    tcp,
    udp,
    vlan,
)
from orchestrator.policy.addresses import parse_address
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP
from orchestrator.program.flows import SYMBOL_BASE, Flow
from orchestrator.program.program import Tier

SYMBOLS = ("vm1", "vm2", "uplink")
VM1, VM2, UPLINK = (SYMBOL_BASE + index for index in range(3))
TO_VM2 = instructions([output(VM2)])

ME, YOU, GATEWAY = 0x020000000A01, 0x020000000A02, 0x0AAC1F000001
A4, B4 = (parse_address(text)[1] for text in ("10.1.2.3", "10.200.7.9"))
A6, B6 = (parse_address(text)[1] for text in ("2001:db8:1::3", "2001:db8:2::9"))
P4, P6 = pseudo_v4(A4, B4), pseudo_v6(A6, B6)

_RULE = Cookie(Tier.HOST, Kind.RULE).pack()


@dataclass(frozen=True, slots=True)
class Sample:
    """See above. `out` maps the hit frame to what must come out where."""

    name: str
    flows: tuple[Flow, ...]
    hit: bytes
    miss: bytes | None
    out: tuple[tuple[str, bytes], ...]

    @property
    def flow(self) -> Flow:
        return self.flows[-1]


def _v4(protocol: int, body: bytes, source: int = A4, destination: int = B4, **more: int) -> bytes:
    return ethernet(ME, GATEWAY, IPV4, ipv4(source, destination, protocol, body, **more))


def _v6(protocol: int, body: bytes, source: int = A6, destination: int = B6) -> bytes:
    return ethernet(ME, GATEWAY, IPV6, ipv6(source, destination, protocol, body))


def _tcp4(source: int = 1000, destination: int = 80, flags: int = 0x02) -> bytes:
    return _v4(TCP, tcp(source, destination, flags, b"hello", P4))


def _udp4(source: int = 1000, destination: int = 53) -> bytes:
    return _v4(UDP, udp(source, destination, b"hello", P4))


def _ns(target: int = B6, mac: int = ME, kind: int = SOLICITATION, option: int = SOURCE_LINK_ADDRESS) -> bytes:
    return _v6(ICMPV6, neighbour(kind, 0, target, link_address(option, mac), P6))


IS4, IS6 = Term(oxm.ETH_TYPE, IPV4), Term(oxm.ETH_TYPE, IPV6)
IS_ARP = Term(oxm.ETH_TYPE, ARP)


def is_protocol(version: Term, number: int) -> tuple[Term, Term]:
    return version, Term(oxm.IP_PROTO, number)


TCP4, UDP4, SCTP4, ICMP4 = (is_protocol(IS4, number) for number in (TCP, UDP, SCTP, ICMP))
TCP6, UDP6, ICMP6 = (is_protocol(IS6, number) for number in (TCP, UDP, ICMPV6))
NS6 = (*ICMP6, Term(oxm.ICMPV6_TYPE, SOLICITATION))
NA6 = (*ICMP6, Term(oxm.ICMPV6_TYPE, ADVERTISEMENT))

NOT_LATER = Term(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK)
LATER = Term(oxm.IP_FRAG, oxm.FRAGMENT_LATER)
FIRST = Term(oxm.IP_FRAG, oxm.FRAGMENT_FIRST)

WHOLE6 = (1 << 128) - 1
HIGH32_6 = 0xFFFFFFFF << 96
VALID = Term(oxm.CT_STATE, int(State.TRACKED), int(State.TRACKED | State.INVALID))

_number = iter(range(1, 1000))


def _flow(terms: Sequence[Term], what: bytes = TO_VM2, *, table: int = 0, priority: int = 1000) -> Flow:
    return Flow(table, priority, oxm.pack(terms), what, _RULE + next(_number))


def _matching(name: str, terms: Sequence[Term], hit: bytes, miss: bytes | None) -> Sample:
    """A sample of a match: what it matches goes to vm2."""
    return Sample(name, (_flow(terms),), hit, miss, (("vm2", hit),))


def _doing(name: str, flows: Sequence[Flow], hit: bytes, miss: bytes | None, *out: tuple[str, bytes]) -> Sample:
    return Sample(name, tuple(flows), hit, miss, out)


MATCHES = (
    _matching("anything", [], _tcp4(), None),
    _matching("ethernet-source", [Term(oxm.ETH_SRC, ME)], _tcp4(), ethernet(YOU, GATEWAY, IPV4, b"")),
    _matching(
        "ethernet-bits",
        [Term(oxm.ETH_SRC, 0x02 << 40, 0xFF << 40), Term(oxm.ETH_DST, 0x01 << 40, 0x01 << 40)],
        ethernet(ME, (1 << 48) - 1, 0x88B5, b"x" * 50),
        ethernet(ME, GATEWAY, 0x88B5, b"x" * 50),
    ),
    _matching("ethernet-destination", [Term(oxm.ETH_DST, GATEWAY)], _tcp4(), ethernet(ME, YOU, IPV4, b"")),
    _matching("tagged", [Term(oxm.VLAN_VID, 0x1000, 0x1000)], vlan(7, _tcp4()), _tcp4()),
    _matching("tag", [Term(oxm.VLAN_VID, 0x1007)], vlan(7, _tcp4()), vlan(8, _tcp4())),
    _matching("untagged", [Term(oxm.VLAN_VID, 0)], _tcp4(), vlan(7, _tcp4())),
    _matching(
        "ipv4-prefixes",
        [IS4, Term(oxm.IPV4_SRC, 0x0A000000, 0xFF000000), Term(oxm.IPV4_DST, B4 & ~0xFF, 0xFFFFFF00)],
        _udp4(),
        _v4(UDP, b"", destination=B4 ^ 0x100),
    ),
    _matching(
        "ipv4-addresses",
        [IS4, Term(oxm.IPV4_SRC, A4), Term(oxm.IPV4_DST, B4)],
        _v4(47, b"gre"),
        _v4(47, b"gre", source=A4 + 1),
    ),
    _matching("ipv4-protocol", is_protocol(IS4, 50), _v4(50, b"esp"), _v4(51, b"ah")),
    _matching(
        "tcp-ports", [*TCP4, Term(oxm.TCP_SRC, 1000), Term(oxm.TCP_DST, 80)], _tcp4(), _tcp4(destination=81)
    ),
    _matching(
        "tcp-port-bits",
        [*TCP4, Term(oxm.TCP_SRC, 0x0200, 0xFE00), Term(oxm.TCP_DST, 0x0040, 0xFFC0)],
        _tcp4(source=1000, destination=80),
        _tcp4(source=1000, destination=0x80),
    ),
    _matching("tcp-flags-ack", [*TCP4, Term(oxm.TCP_FLAGS, 0x10, 0x10)], _tcp4(flags=0x12), _tcp4(flags=0x02)),
    _matching("tcp-flags-rst", [*TCP4, Term(oxm.TCP_FLAGS, 0x04, 0x14)], _tcp4(flags=0x04), _tcp4(flags=0x14)),
    _matching("tcp-flags-all", [*TCP4, Term(oxm.TCP_FLAGS, 0x02, 0xFF)], _tcp4(flags=0x02), _tcp4(flags=0x82)),
    _matching("udp-ports", [*UDP4, Term(oxm.UDP_SRC, 1000), Term(oxm.UDP_DST, 53)], _udp4(), _udp4(1001)),
    _matching(
        "udp-port-bits", [*UDP4, Term(oxm.UDP_SRC, 0x8000, 0x8000), Term(oxm.UDP_DST, 0, 0x8000)], _udp4(40000), _udp4()
    ),
    _matching(
        "sctp-ports",
        [*SCTP4, Term(oxm.SCTP_SRC, 4, 0xFFFE), Term(oxm.SCTP_DST, 9)],
        _v4(SCTP, sctp(5, 9, b"chunk")),
        _v4(SCTP, sctp(6, 9, b"chunk")),
    ),
    _matching(
        "sctp-port-bits",
        [*SCTP4, Term(oxm.SCTP_SRC, 5), Term(oxm.SCTP_DST, 8, 0xFFF8)],
        _v4(SCTP, sctp(5, 9, b"chunk")),
        _v4(SCTP, sctp(5, 16, b"chunk")),
    ),
    _matching(
        "icmp",
        [*ICMP4, Term(oxm.ICMP_TYPE, 3), Term(oxm.ICMP_CODE, 4)],
        _v4(ICMP, icmp(3, 4, b"\0\0\0\0quote")),
        _v4(ICMP, icmp(3, 1, b"\0\0\0\0quote")),
    ),
    _matching(
        "not-later", [*UDP4, NOT_LATER, Term(oxm.UDP_DST, 53)], _v4(UDP, udp(1, 53, b"", P4), fragment=MORE_FRAGMENTS),
        _v4(UDP, udp(1, 53, b"", P4), fragment=LATER_OFFSET),
    ),
    _matching(
        "first-fragment", [*UDP4, FIRST, Term(oxm.UDP_DST, 0), Term(oxm.UDP_SRC, 0)],
        _v4(UDP, b"tiny", fragment=MORE_FRAGMENTS), _v4(UDP, udp(7, 9, b"", P4), fragment=MORE_FRAGMENTS),
    ),
    _matching(
        "dscp", [IS4, Term(oxm.IP_DSCP, 46)], _v4(47, b"gre", service=46 << 2 | 1), _v4(47, b"gre", service=44 << 2),
    ),
    _matching("later-fragment", [*UDP4, LATER], _v4(UDP, b"rest", fragment=LATER_OFFSET), _udp4()),
    _matching(
        "ipv6-prefixes",
        [IS6, Term(oxm.IPV6_SRC, A6 & HIGH32_6, HIGH32_6), Term(oxm.IPV6_DST, B6 & ~0xFFFF, WHOLE6 ^ 0xFFFF)],
        _v6(TCP, tcp(1, 2, 2, b"", P6)),
        _v6(TCP, tcp(1, 2, 2, b"", P6), destination=B6 + (1 << 16)),
    ),
    _matching(
        "ipv6-addresses", [IS6, Term(oxm.IPV6_SRC, A6), Term(oxm.IPV6_DST, B6)],
        _v6(47, b"gre"), _v6(47, b"gre", source=A6 + 1),
    ),
    _matching(
        "ipv6-tcp", [*TCP6, NOT_LATER, Term(oxm.TCP_DST, 443), Term(oxm.TCP_FLAGS, 0x10, 0x10)],
        _v6(TCP, tcp(1, 443, 0x10, b"", P6)), _v6(TCP, tcp(1, 443, 0x02, b"", P6)),
    ),
    _matching(
        "ipv6-behind-extensions", [*UDP6, NOT_LATER, Term(oxm.UDP_DST, 53)],
        _v6(HOP_BY_HOP, extension(60, 16) + extension(UDP) + udp(1, 53, b"", P6)),
        _v6(HOP_BY_HOP, extension(60, 16) + extension(TCP) + tcp(1, 53, 2, b"", P6)),
    ),
    _matching(
        "ipv6-first-fragment", [*UDP6, NOT_LATER, Term(oxm.UDP_DST, 53)],
        _v6(IPV6_FRAGMENT, fragment_header(UDP, 1) + udp(1, 53, b"", P6)),
        _v6(IPV6_FRAGMENT, fragment_header(UDP, 1480) + udp(1, 53, b"", P6)),
    ),
    _matching(
        "ipv6-later-fragment", [*is_protocol(IS6, IPV6_FRAGMENT), LATER],
        _v6(IPV6_FRAGMENT, fragment_header(UDP, 1480) + b"rest of it"), _v6(UDP, udp(1, 53, b"", P6)),
    ),
    _matching(
        "icmpv6", [*ICMP6, Term(oxm.ICMPV6_TYPE, 128), Term(oxm.ICMPV6_CODE, 0)],
        _v6(ICMPV6, icmp(128, 0, b"\0\1\0\1ping", P6)), _v6(ICMPV6, icmp(129, 0, b"\0\1\0\1ping", P6)),
    ),
    _matching(
        "solicitation", [*NS6, Term(oxm.ICMPV6_CODE, 0), Term(oxm.ND_TARGET, B6), Term(oxm.ND_SLL, ME)],
        _ns(), _ns(mac=YOU),
    ),
    _matching(
        "solicitation-bits",
        [*NS6, Term(oxm.ND_TARGET, B6 & HIGH32_6, HIGH32_6), Term(oxm.ND_SLL, 0x02 << 40, 0xFF << 40)],
        _ns(), _ns(target=B6 ^ 1 << 120),
    ),
    _matching(
        "advertisement", [*NA6, Term(oxm.ND_TLL, ME)],
        _ns(kind=ADVERTISEMENT, option=TARGET_LINK_ADDRESS),
        _ns(kind=ADVERTISEMENT, option=TARGET_LINK_ADDRESS, mac=YOU),
    ),
    _matching(
        "advertisement-bits", [*NA6, Term(oxm.ND_TLL, 1, 1)],
        _ns(kind=ADVERTISEMENT, option=TARGET_LINK_ADDRESS),
        _ns(kind=ADVERTISEMENT, option=TARGET_LINK_ADDRESS, mac=YOU),
    ),
    _matching(
        "arp",
        [IS_ARP, Term(oxm.ARP_OP, ARP_REQUEST), Term(oxm.ARP_SPA, A4), Term(oxm.ARP_TPA, B4), Term(oxm.ARP_SHA, ME),
         Term(oxm.ARP_THA, 0)],
        ethernet(ME, YOU, ARP, arp(ARP_REQUEST, ME, A4, 0, B4)),
        ethernet(ME, YOU, ARP, arp(ARP_REPLY, ME, A4, 0, B4)),
    ),
    _matching(
        "arp-bits",
        [IS_ARP, Term(oxm.ARP_SPA, A4 & 0xFF000000, 0xFF000000), Term(oxm.ARP_TPA, B4 & 1, 1),
         Term(oxm.ARP_SHA, 1, 1), Term(oxm.ARP_THA, 0, 0xFF)],
        ethernet(ME, YOU, ARP, arp(ARP_REQUEST, ME, A4, 0, B4)),
        ethernet(ME, YOU, ARP, arp(ARP_REQUEST, ME, A4, 0, B4 ^ 1)),
    ),
)  # fmt: skip


def _marked(name: str, register: int, value: int, term: Term | Sequence[Term]) -> Sample:
    """A sample of matching a register, which an earlier flow wrote for what came to vm1's MAC."""
    mark = instructions([set_field(oxm.REGISTERS[register], value)], goto=10)
    terms = [term] if isinstance(term, Term) else list(term)
    return _doing(
        name,
        [_flow([Term(oxm.ETH_SRC, ME)], mark), _flow([], instructions(goto=10), priority=1), _flow(terms, table=10)],
        _tcp4(),
        ethernet(YOU, GATEWAY, IPV4, b""),
        ("vm2", _tcp4()),
    )


def _reading(name: str, version: Term, hit: bytes, miss: bytes, *read: tuple[oxm.Field, int, int, int, int]) -> Sample:
    """A sample of reading a connection's fields: each from a bit, so many bits, into a register, and what is there."""
    reads = [read_field(field, oxm.REGISTERS[to], bits=bits, source_at=at) for field, at, bits, to, _ in read]
    flows = [
        _flow([version], instructions([track(7, 5)])),
        _flow([version, VALID], instructions(reads, goto=6), table=5),
        _flow([Term(oxm.REGISTERS[to], value) for _, _, _, to, value in read], table=6),
    ]
    return _doing(name, flows, hit, miss, ("vm2", hit))


def _swapped_arp() -> Sample:
    asked, answered = arp(ARP_REQUEST, ME, A4, 0, B4), arp(ARP_REPLY, GATEWAY, B4, ME, A4)
    actions = (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST), set_field(oxm.ETH_SRC, GATEWAY), set_field(oxm.ARP_OP, ARP_REPLY),
        copy_field(oxm.ARP_SHA, oxm.ARP_THA), set_field(oxm.ARP_SHA, GATEWAY),
        copy_field(oxm.ARP_TPA, oxm.REGISTERS[5]), copy_field(oxm.ARP_SPA, oxm.ARP_TPA),
        copy_field(oxm.REGISTERS[5], oxm.ARP_SPA), output(IN_PORT),
    )  # fmt: skip
    return _doing(
        "answer-arp",
        [_flow([IS_ARP, Term(oxm.ARP_OP, ARP_REQUEST)], instructions(actions))],
        ethernet(ME, YOU, ARP, asked),
        ethernet(ME, YOU, ARP, arp(ARP_REPLY, ME, A4, 0, B4)),
        ("vm1", ethernet(GATEWAY, ME, ARP, answered)),
    )


def _advertised() -> Sample:
    """A solicitation becomes an advertisement over two tables, for its address may only be set when it is one."""
    actions = (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST), set_field(oxm.ETH_SRC, GATEWAY),
        copy_field(oxm.IPV6_SRC, oxm.IPV6_DST), copy_field(oxm.ND_TARGET, oxm.IPV6_SRC),
        set_field(oxm.ICMPV6_TYPE, ADVERTISEMENT), set_field(oxm.ND_OPTIONS_TYPE, TARGET_LINK_ADDRESS),
        set_field(oxm.ND_RESERVED, 0xE0000000),
    )  # fmt: skip
    answer = neighbour(ADVERTISEMENT, 0xE0000000, B6, link_address(TARGET_LINK_ADDRESS, GATEWAY), pseudo_v6(B6, A6))
    return _doing(
        "answer-solicitation",
        [
            _flow(NS6, instructions(actions, goto=6)),
            _flow(NA6, instructions([set_field(oxm.ND_TLL, GATEWAY), output(IN_PORT)]), table=6),
        ],
        _ns(),
        _ns(kind=ADVERTISEMENT, option=TARGET_LINK_ADDRESS),
        ("vm1", ethernet(GATEWAY, ME, IPV6, ipv6(B6, A6, ICMPV6, answer))),
    )


_READDRESSED = [set_field(oxm.ETH_SRC, GATEWAY), set_field(oxm.ETH_DST, YOU), output(UPLINK)]

ACTIONS = (
    _marked("register-0", 0, 77, Term(oxm.REGISTERS[0], 77)),
    _marked("register-1", 1, 78, Term(oxm.REGISTERS[1], 78)),
    _marked("register-2-bit", 2, 3, Term(oxm.REGISTERS[2], 1, 1)),
    _marked("registers-4-5", 4, 9, [Term(oxm.REGISTERS[4], 9), Term(oxm.REGISTERS[5], 0)]),
    _marked("register-7", 7, 0xFFFFFFFF, Term(oxm.REGISTERS[7], 0x80000000, 0x80000000)),
    _doing("from-a-port", [_flow([Term(oxm.IN_PORT, VM1)])], _tcp4(), None, ("vm2", _tcp4())),
    _doing("drop", [_flow([IS4], b"")], _tcp4(), None),
    _doing("send-back", [_flow([IS4], instructions([output(IN_PORT)]))], _tcp4(), _v6(6, b""), ("vm1", _tcp4())),
    _doing(
        "readdress", [_flow([IS4], instructions(_READDRESSED))], _tcp4(), None,
        ("wan0", ethernet(GATEWAY, YOU, IPV4, _tcp4()[14:])),
    ),
    _doing(
        "send-to-register",
        [
            _flow([IS4], instructions([set_field(oxm.REGISTERS[4], VM2)], goto=60)),
            _flow([], instructions([output_register(oxm.REGISTERS[4])]), table=60),
        ],
        _tcp4(), _v6(6, b""), ("vm2", _tcp4()),
    ),
    _doing(
        "conjunction",
        [
            _flow([IS4, Term(oxm.IPV4_SRC, A4 & ~0xFF, 0xFFFFFF00)], instructions([conjunction(7, 0, 2)])),
            _flow([IS4, Term(oxm.IPV4_SRC, B4)], instructions([conjunction(7, 0, 2), conjunction(8, 0, 2)])),
            _flow([*TCP4, Term(oxm.TCP_DST, 80)], instructions([conjunction(7, 1, 2)])),
            _flow([Term(oxm.CONJ_ID, 7), IS4]),
        ],
        _tcp4(), _tcp4(destination=81), ("vm2", _tcp4()),
    ),
    _doing(
        "connection",
        [
            _flow([*TCP4, Term(oxm.TCP_DST, 80)], instructions([begin(7, 6), track(7, 5)])),
            _flow([*TCP4], instructions([begin(7, 5), track(7, 5)]), priority=1),
            _flow([Term(oxm.CT_MARK, 2, 2), Term(oxm.PKT_MARK, 0, 1)], table=5),
        ],
        _tcp4(), _tcp4(destination=81), ("vm2", _tcp4()),
    ),
    _doing(
        "first-packet",
        [
            _flow([IS4], instructions([track(7, 5)])),
            _flow(
                [IS4, VALID, Term(oxm.CT_NW_SRC, A4 & ~0xFF, 0xFFFFFF00), Term(oxm.CT_NW_DST, B4 & ~1, 0xFFFFFFFE),
                 Term(oxm.CT_NW_PROTO, TCP), Term(oxm.CT_TP_SRC, 1000 & ~7, 0xFFF8), Term(oxm.CT_TP_DST, 80, 0xFFFE)],
                table=5,
            ),
        ],
        _tcp4(), _tcp4(destination=82), ("vm2", _tcp4()),
    ),
    _doing(
        "first-packet-6",
        [
            _flow([IS6], instructions([track(7, 5)])),
            _flow(
                [IS6, VALID, Term(oxm.CT_IPV6_SRC, A6 & HIGH32_6, HIGH32_6), Term(oxm.CT_IPV6_DST, B6 & ~1, WHOLE6 ^ 1),
                 Term(oxm.CT_NW_PROTO, ICMPV6), Term(oxm.CT_TP_SRC, 128), Term(oxm.CT_TP_DST, 0)],
                table=5,
            ),
        ],
        _v6(ICMPV6, icmp(128, 0, b"\0\1\0\1", P6)), _v6(ICMPV6, icmp(129, 0, b"\0\1\0\1", P6)),
        ("vm2", _v6(ICMPV6, icmp(128, 0, b"\0\1\0\1", P6))),
    ),
    _reading(
        "read-first-packet", IS4, _tcp4(), _tcp4(destination=82),
        (oxm.CT_NW_DST, 0, 32, 8, B4), (oxm.CT_TP_DST, 0, 16, 12, 80),
    ),
    _reading(
        "read-first-packet-6", IS6,
        _v6(ICMPV6, icmp(128, 0, b"\0\1\0\1", P6)), _v6(ICMPV6, icmp(129, 0, b"\0\1\0\1", P6)),
        (oxm.CT_IPV6_DST, 96, 32, 8, B6 >> 96), (oxm.CT_IPV6_DST, 0, 32, 11, B6 & 0xFFFFFFFF),
    ),
    _doing(
        "opened",
        [
            _flow([IS4], instructions([open_with(7, 1, 5)])),
            _flow([Term(oxm.CT_MARK, 1)], table=5),
        ],
        _tcp4(), _tcp4(destination=81, flags=0x12), ("vm2", _tcp4()),
    ),
    _doing(
        "choose-port", [
            _flow([], instructions([output_register(oxm.REGISTERS[4])]), table=60),
            _flow([IS4], instructions([set_field(oxm.REGISTERS[4], UPLINK)], goto=60)),
        ],
        _tcp4(), _v6(6, b""), ("wan0", _tcp4()),
    ),
    _doing(
        "both", [_flow([IS4], instructions([output(VM2), output(UPLINK), output(VM1)]))], _tcp4(), None,
        ("vm2", _tcp4()), ("wan0", _tcp4()),
    ),
    _swapped_arp(),
    _advertised(),
)  # fmt: skip

SAMPLES = MATCHES + ACTIONS

"""Table of the iptables-save options that can be carried over.

For each option: how many words follow, and what they narrow.

Later fragments carry no transport header; every match that looks into one (`-m tcp` even without a port) fails for
them, negated or not. `-f` and `! -f` are about the IP header. A value that cannot be read raises BadInput, which costs
the line and not the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.dscp import EVERY_CODE_POINT, HIGHEST_CODE_POINT, NAMES
from orchestrator.policy.fields import DSCP, ICMP_CODE
from orchestrator.policy.formats.assemble import plain
from orchestrator.policy.formats.draft import Draft
from orchestrator.policy.formats.lineboxes import Axes
from orchestrator.policy.formats.portnames import IPTABLES_ICMP, icmp_kind, port_number, prefix_spans
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP, parse_protocol
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, LATER, WHOLE
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import TcpFlag

STATES = frozenset({"INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED"})

PROTOCOL_ZERO = "0x6&0xff=0x0"
"""The u32 match for IPv4's protocol number 0 (the byte at offset 9): `-p 0` means every protocol."""

_TRANSPORTS: Mapping[str, int] = MappingProxyType(
    {"tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP, "icmp6": ICMPV6, "ipv6-icmp": ICMPV6, "icmpv6": ICMPV6}
)
"""Matches of one protocol's header; naming one is enough to leave later fragments out."""

_PLAIN_MODULES = frozenset({"multiport", "iprange", "comment", "state", "conntrack", "u32", "dscp", "tos"})
_TOS: Mapping[str, int] = MappingProxyType(
    {
        "minimize-delay": 0x10,
        "maximize-throughput": 0x08,
        "maximize-reliability": 0x04,
        "minimize-cost": 0x02,
        "normal-service": 0x00,
    }
)
_TOS_MASK = 0x3F
"""The bits that a name of TOS speaks of: all but the precedence."""
_UNSEEN: Mapping[str, str] = MappingProxyType(
    {
        "limit": "rates are not counted here",
        "hashlimit": "rates are not counted here",
        "recent": "who was seen before is not remembered here",
        "connlimit": "connections are not counted here",
        "mac": "MAC addresses are not looked at here",
        "mark": "packet marks do not exist here",
        "connmark": "packet marks do not exist here",
        "owner": "the local user who sends cannot be seen here",
        "physdev": "the port of a bridge cannot be seen here",
        "addrtype": "the router's own table of addresses is not in the file",
        "set": "the set is not in the file",
        "policy": "IPsec cannot be seen here",
        "time": "no rule comes and goes by the hour here",
    }
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option: how many words follow it, and what it does to a draft."""

    values: int
    read: Callable[[Draft, list[str], bool], None]
    ends_module: bool = False


def _negate_bytes(members: int, negated: bool) -> int:
    return ALL_BYTES & ~members if negated else members


def _read_address(axis: str) -> Callable[[Draft, list[str], bool], None]:
    def read(draft: Draft, values: list[str], negated: bool) -> None:
        found = spans.union(span for text in values[0].split(",") for span in prefix_spans(text, draft.family))
        draft.narrow(axis, spans.minus(ALL_ADDRESSES[draft.family], found) if negated else found)

    return read


def _read_address_range(axis: str) -> Callable[[Draft, list[str], bool], None]:
    def read(draft: Draft, values: list[str], negated: bool) -> None:
        low_text, _, high_text = values[0].partition("-")
        (family, low), (other, high) = parse_address(low_text), parse_address(high_text or low_text)
        if (family, other) != (draft.family, draft.family) or low > high:
            raise BadInput(f"'{plain(values[0], 80)}' is not a range of IPv{draft.family.value} addresses")
        found = (Span(low, high),)
        draft.narrow(axis, spans.minus(ALL_ADDRESSES[family], found) if negated else found)

    return read


def _read_protocol(draft: Draft, values: list[str], negated: bool) -> None:
    number = 0 if values[0].lower() in ("all", "ip") else parse_protocol(values[0])
    if number:
        draft.narrow("protocols", _negate_bytes(1 << number, negated))
    elif negated:
        raise BadInput("'! -p all' matches nothing")


def _ports(*axes: str) -> Callable[[Draft, list[str], bool], None]:
    """Narrow to ports on one side; with two sides (`--ports`) either may match."""

    def read(draft: Draft, values: list[str], negated: bool) -> None:
        found = _read_port_list(values[0], draft)
        members = spans.minus(ALL_PORTS, found) if negated else found
        draft.narrow("fragments", WHOLE)
        if len(axes) == 1 or negated:
            for axis in axes:
                draft.narrow(axis, members)
        else:
            draft.either.append(tuple({axis: members} for axis in axes))

    return read


def _read_port_list(text: str, draft: Draft) -> Spans:
    protocols = draft.axes.get("protocols")
    protocol = protocols.bit_length() - 1 if isinstance(protocols, int) else 0
    found = []
    for part in text.split(","):
        low, colon, high = part.partition(":")
        first = port_number(low, protocol) if low else 0
        last = port_number(high, protocol) if high else HIGHEST_PORT if colon else first
        if not part or first > last:
            raise BadInput(f"'{plain(part, 40)}' is not a port or a range of ports")
        found.append(Span(first, last))
    return spans.union(found)


def _read_tcp_flags(draft: Draft, values: list[str], negated: bool) -> None:
    looked_at, wanted = _read_flag_names(values[0]), _read_flag_names(values[1])
    found = sum(1 << flags for flags in range(256) if flags & looked_at == wanted)
    draft.narrow("fragments", WHOLE)
    draft.narrow("tcp_flags", _negate_bytes(found, negated))


def _read_syn(draft: Draft, _values: list[str], negated: bool) -> None:
    _read_tcp_flags(draft, ["FIN,SYN,RST,ACK", "SYN"], negated)


def _read_flag_names(text: str) -> int:
    flags = 0
    for name in text.upper().split(","):
        if name == "ALL":
            flags |= 0x3F  # iptables knows six flags
        elif name in TcpFlag.__members__ and name not in ("ECE", "CWR"):
            flags |= TcpFlag[name].value
        elif name != "NONE":
            raise BadInput(f"'{plain(name, 40)}' is not a TCP flag")
    return flags


def _read_u32(draft: Draft, values: list[str], negated: bool) -> None:
    if values[0].lower() != PROTOCOL_ZERO or draft.family is Family.IPV6:
        raise BadInput("-m u32: bytes at some offset cannot be looked at here")
    draft.narrow("protocols", _negate_bytes(1, negated))


def _read_dscp(draft: Draft, values: list[str], negated: bool) -> None:
    point = _read_number(values[0])
    if point > HIGHEST_CODE_POINT:
        raise BadInput(f"'{plain(values[0], 40)}' is not a DSCP")
    _narrow_dscp(draft, 1 << point, negated)


def _read_dscp_class(draft: Draft, values: list[str], negated: bool) -> None:
    point = NAMES.get(values[0].lower())
    if point is None:
        raise BadInput(f"'{plain(values[0], 40)}' is not a class of DSCP")
    _narrow_dscp(draft, 1 << point, negated)


def _read_tos(draft: Draft, values: list[str], negated: bool) -> None:
    word, slash, mask_word = values[0].partition("/")
    named = _TOS.get(word.lower())
    value = _read_number(word) if named is None else named
    mask = _read_number(mask_word) if slash else 0xFF if named is None else _TOS_MASK
    if mask & 3:
        raise BadInput("-m tos: bits that are ECN's today cannot be looked at here")
    points = (point for point in range(HIGHEST_CODE_POINT + 1) if point << 2 & mask == value)
    _narrow_dscp(draft, sum(1 << point for point in points), negated)


def _narrow_dscp(draft: Draft, members: int, negated: bool) -> None:
    draft.narrow(DSCP.axis, EVERY_CODE_POINT & ~members if negated else members)


def _read_number(word: str) -> int:
    try:
        number = int(word, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFF:
        raise BadInput(f"'{plain(word, 40)}' is not a number of eight bits")
    return number


def _read_icmp(draft: Draft, values: list[str], negated: bool) -> None:
    type_word, slash, code_word = values[0].partition("/")
    draft.narrow("fragments", WHOLE)
    if draft.family is Family.IPV4 and type_word in ("any", "255"):
        if negated:
            draft.narrow("icmp_types", 0)
        return
    kind, code = icmp_kind(type_word, code_word if slash else None, IPTABLES_ICMP[draft.family])
    if code is None:
        draft.narrow("icmp_types", _negate_bytes(1 << kind, negated))
    elif not negated:
        draft.narrow("icmp_types", 1 << kind)
        draft.narrow(ICMP_CODE.axis, 1 << code)
    else:
        other_types: Axes = {"icmp_types": ALL_BYTES & ~(1 << kind)}
        other_codes: Axes = {"icmp_types": 1 << kind, ICMP_CODE.axis: ALL_BYTES & ~(1 << code)}
        draft.either.append((other_types, other_codes))


def _read_fragment(draft: Draft, _values: list[str], negated: bool) -> None:
    draft.narrow("fragments", WHOLE if negated else LATER)


def _read_states(draft: Draft, values: list[str], negated: bool) -> None:
    named = frozenset(values[0].split(","))
    if not named <= STATES:
        raise BadInput(f"the connection states {plain(values[0], 80)} are not known here")
    asked = STATES - named if negated else named
    draft.states = asked if draft.states is None else draft.states & asked


def load_module(draft: Draft, values: list[str], _negated: bool) -> None:
    """`-m NAME`: the header it looks into, or why it cannot be carried over."""
    name = values[0]
    if name in _TRANSPORTS:
        draft.transport = _TRANSPORTS[name]
    elif name not in _PLAIN_MODULES:
        draft.reasons.append(f"-m {plain(name, 40)}: {_UNSEEN.get(name, 'this match is not known here')}")


def _read_arrives(draft: Draft, values: list[str], negated: bool) -> None:
    if values[0] != "+" or negated:
        draft.narrow_interface(draft.interfaces.arrives, values, "+", negated=negated)


def _read_leaves(draft: Draft, values: list[str], negated: bool) -> None:
    if values[0] != "+" or negated:
        draft.narrow_interface(draft.interfaces.leaves, values, "+", negated=negated)


def _read_comment(draft: Draft, values: list[str], _negated: bool) -> None:
    draft.comment = values[0]


def _read_jump(draft: Draft, values: list[str], _negated: bool) -> None:
    draft.target = values[0]


def _read_goto(draft: Draft, values: list[str], _negated: bool) -> None:
    draft.target, draft.goto = values[0], True


def is_known_module(name: str = "") -> bool:
    """Whether the options of a match are in the table."""
    return name in _TRANSPORTS or name in _PLAIN_MODULES


def _nothing(_draft: Draft, _values: list[str], _negated: bool) -> None:
    """Counters say nothing about packets."""


def _spell_option(*names: str, option: Option) -> Iterator[tuple[str, Option]]:
    return ((name, option) for name in names)


OPTIONS: Mapping[str, Option] = MappingProxyType(
    dict(
        [
            *_spell_option("-s", "--source", "--src", option=Option(1, _read_address("source"), True)),
            *_spell_option("-d", "--destination", "--dst", option=Option(1, _read_address("destination"), True)),
            *_spell_option("-p", "--protocol", option=Option(1, _read_protocol, True)),
            *_spell_option("-i", "--in-interface", option=Option(1, _read_arrives, True)),
            *_spell_option("-o", "--out-interface", option=Option(1, _read_leaves, True)),
            *_spell_option("-f", "--fragment", option=Option(0, _read_fragment, True)),
            *_spell_option("-m", "--match", option=Option(1, load_module, True)),
            *_spell_option("-j", "--jump", option=Option(1, _read_jump, True)),
            *_spell_option("-g", "--goto", option=Option(1, _read_goto, True)),
            *_spell_option("-c", "--set-counters", option=Option(2, _nothing, True)),
            *_spell_option("--sport", "--source-port", option=Option(1, _ports("source_ports"))),
            *_spell_option("--dport", "--destination-port", option=Option(1, _ports("destination_ports"))),
            *_spell_option("--sports", "--source-ports", option=Option(1, _ports("source_ports"))),
            *_spell_option("--dports", "--destination-ports", option=Option(1, _ports("destination_ports"))),
            *_spell_option("--ports", "--port", option=Option(1, _ports("source_ports", "destination_ports"))),
            *_spell_option("--tcp-flags", option=Option(2, _read_tcp_flags)),
            *_spell_option("--syn", option=Option(0, _read_syn)),
            *_spell_option("--icmp-type", "--icmpv6-type", option=Option(1, _read_icmp)),
            *_spell_option("--dscp", option=Option(1, _read_dscp)),
            *_spell_option("--dscp-class", option=Option(1, _read_dscp_class)),
            *_spell_option("--tos", option=Option(1, _read_tos)),
            *_spell_option("--src-range", option=Option(1, _read_address_range("source"))),
            *_spell_option("--dst-range", option=Option(1, _read_address_range("destination"))),
            *_spell_option("--u32", option=Option(1, _read_u32)),
            *_spell_option("--state", "--ctstate", option=Option(1, _read_states)),
            *_spell_option("--comment", option=Option(1, _read_comment)),
        ]
    )
)
"""Every option that is read. `ends_module`: the options of an unknown match end where one of these begins.

`--proto`, short for `--protocol`, is not among them: `-m policy` has an option of this name.
"""

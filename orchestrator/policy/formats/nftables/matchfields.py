"""The left side of a match: its field, and the packets that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import HIGHEST_CODE_POINT
from orchestrator.policy.fields import DSCP
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.draft import Draft
from orchestrator.policy.formats.json_text import quote_value
from orchestrator.policy.formats.nftables import values
from orchestrator.policy.formats.nftables.document import single
from orchestrator.policy.formats.nftables.values import Number
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP, UDPLITE
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, WHOLE
from orchestrator.policy.spans import Span, Spans

VERSION = "version"
"""The axis that is not one of a box: a draft is of one IP version."""


@dataclass(frozen=True, slots=True)
class Header:
    """The packets that have a header: their IP version, their protocol, no later fragments."""

    family: Family | None = None
    protocol: int | None = None
    transport: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A supported field: its header, its axis, and the reader of its values."""

    header: Header
    axis: str
    number: Number


_ANY = Header()
_IPV4, _IPV6 = Header(Family.IPV4), Header(Family.IPV6)
_TCP = Header(protocol=TCP, transport=True)
_UDP = Header(protocol=UDP, transport=True)
_SCTP = Header(protocol=SCTP, transport=True)
_ICMP = Header(Family.IPV4, ICMP, transport=True)
_ICMPV6 = Header(Family.IPV6, ICMPV6, transport=True)
TRANSPORT = Header(transport=True)

_HEADERS: Mapping[str, Header] = MappingProxyType(
    {
        "ip": _IPV4, "ip6": _IPV6, "tcp": _TCP, "udp": _UDP, "sctp": _SCTP, "icmp": _ICMP, "icmpv6": _ICMPV6,
        "th": TRANSPORT, "udplite": Header(protocol=UDPLITE, transport=True),
        "dccp": Header(protocol=33, transport=True), "esp": Header(protocol=50, transport=True),
    }
)  # fmt: skip
"""Headers whose being there says something. `ah` and `comp` are no transport headers in IPv6, and are left out."""

_WITH_PORTS = ("tcp", "udp", "sctp", "th")

_FIELDS: Mapping[tuple[str, str], Field] = MappingProxyType(
    {
        ("ip", "saddr"): Field(_IPV4, "source", values.address_in(Family.IPV4)),
        ("ip", "daddr"): Field(_IPV4, "destination", values.address_in(Family.IPV4)),
        ("ip", "protocol"): Field(_IPV4, "protocols", values.protocol),
        ("ip", "dscp"): Field(_IPV4, DSCP.axis, values.code_point),
        ("ip6", "saddr"): Field(_IPV6, "source", values.address_in(Family.IPV6)),
        ("ip6", "daddr"): Field(_IPV6, "destination", values.address_in(Family.IPV6)),
        ("ip6", "dscp"): Field(_IPV6, DSCP.axis, values.code_point),
        ("tcp", "flags"): Field(_TCP, "tcp_flags", values.flag_byte),
        ("icmp", "type"): Field(_ICMP, "icmp_types", values.icmp_type),
        ("icmp", "code"): Field(_ICMP, "icmp_codes", values.icmp_code),
        ("icmpv6", "type"): Field(_ICMPV6, "icmp_types", values.icmpv6_type),
        ("icmpv6", "code"): Field(_ICMPV6, "icmp_codes", values.icmpv6_code),
        **{
            (name, "sport"): Field(_HEADERS[name], "source_ports", values.port) for name in ("tcp", "udp", "sctp", "th")
        },
        **{
            (name, "dport"): Field(_HEADERS[name], "destination_ports", values.port)
            for name in ("tcp", "udp", "sctp", "th")
        },
    }
)
_META: Mapping[str, Field] = MappingProxyType(
    {
        "l4proto": Field(_ANY, "protocols", values.protocol),
        "nfproto": Field(_ANY, VERSION, values.version),
        "protocol": Field(_ANY, VERSION, values.version),
    }
)

_KEYS_OF_PAYLOAD = frozenset({"protocol", "field", "base", "offset", "len"})
"""A field by its name, or bytes by their place; `tunnel` would say that it is one of an inner packet."""

_UNSEEN: Mapping[str, str] = MappingProxyType(
    {
        "meta": "interfaces, marks and times are not part of a packet",
        "ct": "connections are not tracked here",
        "fib": "the routing table is not in the file",
        "rt": "the routing table is not in the file",
        "socket": "sockets cannot be seen here",
        "osf": "operating systems are not guessed here",
        "ipsec": "IPsec cannot be seen here",
        "numgen": "no packet decides that",
        "exthdr": "extension headers cannot be looked at here",
    }
)


def field_of(left: object, draft: Draft) -> Field:
    """The field of one expression; narrows the draft to the packets that have its header.

    Raises BadInput for what cannot be carried over, after narrowing: the header is there in any case.
    """
    kind, body = single(left, "left")
    keys = body if isinstance(body, dict) else {}
    if kind == "payload":
        if not keys.keys() <= _KEYS_OF_PAYLOAD:
            raise BadInput("what a tunnel carries cannot be looked at here")
        name, key = str(keys.get("protocol"))[:40], str(keys.get("field"))[:40]
        header = _HEADERS.get(name, TRANSPORT if keys.get("base") == "th" else _ANY)
        narrow_to(header, draft)
        found = _FIELDS.get((name, key))
        if (name, key) == ("ip6", "nexthdr"):
            raise BadInput("ip6 nexthdr sees the first header only, which need not be that of the protocol")
        what = f"{name} {key}"
    else:
        narrow_to(_IPV6 if kind == "exthdr" else _ANY, draft)
        found = _META.get(str(keys.get("key"))[:40]) if kind == "meta" and len(keys) == 1 else None
        what = f"{kind[:40]} {keys.get('key', '') if isinstance(keys.get('key'), str) else ''}"
    if found is None:
        raise BadInput(f"{shown(what, 60)}: {_UNSEEN.get(kind, 'this field cannot be looked at here')}")
    return found


def narrow_to(header: Header, draft: Draft) -> None:
    """Narrow a draft to the packets that have a header."""
    if header.family not in (None, draft.family):
        draft.narrow("source", ())
    if header.protocol is not None:
        draft.narrow("protocols", 1 << header.protocol)
    if header.transport:
        draft.narrow("fragments", WHOLE)


def members_of(axis: str, found: Spans) -> int | Spans:
    """Numbers as an axis keeps them."""
    if axis in ("source", "destination", "source_ports", "destination_ports"):
        return found
    return sum(((1 << (high - low + 1)) - 1) << low for low, high in found)


def universe_of(axis: str, family: Family) -> Spans:
    """All numbers of an axis."""
    if axis in ("source", "destination"):
        return ALL_ADDRESSES[family]
    if axis == DSCP.axis:
        return (Span(0, HIGHEST_CODE_POINT),)
    return ALL_PORTS if axis in ("source_ports", "destination_ports") else (Span(0, 255),)


def narrow_field(draft: Draft, found: Field, wanted: Spans) -> None:
    """Narrow a draft to the packets whose field has one of some values."""
    if found.axis == VERSION:
        if not spans.holds(wanted, draft.family.value):
            draft.narrow("source", ())
        return
    draft.narrow(found.axis, members_of(found.axis, wanted))


def narrow_flags(draft: Draft, test: str, value: object, mask: int = 0xFF) -> None:
    """Narrow by `tcp flags`: bits equal to, other than, among, not among a value's.

    Raises BadInput.
    """
    wanted = values.flag_byte(value)
    if test in ("==", "!="):
        found = sum(1 << flags for flags in range(256) if (flags & mask == wanted) == (test == "=="))
    elif test in ("in", "!") and mask == 0xFF:
        found = sum(1 << flags for flags in range(256) if bool(flags & wanted) == (test == "in"))
    else:
        raise BadInput(f"the test {quote_value(test)} of TCP flags is not known here")
    draft.narrow("tcp_flags", found & ALL_BYTES)

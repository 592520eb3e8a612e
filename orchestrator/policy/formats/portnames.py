"""Names of ports and ICMP types in access lists, and masks that are no prefix."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.spans import Span, Spans, union

MOST_BLOCKS = 256
"""A mask with gaps may stand for at most so many blocks of addresses."""

_BOTH = {
    "discard": 9, "domain": 53, "echo": 7, "pim-auto-rp": 496, "sunrpc": 111, "syslog": 514, "tacacs": 49, "talk": 517,
    "time": 37, "sip": 5060, "ntp": 123, "snmp": 161, "radius": 1812, "ldap": 389, "kerberos": 88,
    "microsoft-ds": 445, "mlag": 4432,
}  # fmt: skip
_TCP = _BOTH | {
    "bgp": 179, "chargen": 19, "cmd": 514, "daytime": 13, "drip": 3949, "exec": 512, "finger": 79, "ftp": 21,
    "ftp-data": 20, "gopher": 70, "hostname": 101, "ident": 113, "irc": 194, "klogin": 543, "kshell": 544, "login": 513,
    "lpd": 515, "msrpc": 135, "nntp": 119, "onep-plain": 15001, "onep-tls": 15002, "pop2": 109, "pop3": 110, "smtp": 25,
    "telnet": 23, "uucp": 540, "whois": 43, "www": 80, "http": 80, "https": 443, "ssh": 22, "imap": 143, "imaps": 993,
    "pop3s": 995, "ldaps": 636,
}  # fmt: skip
_UDP = _BOTH | {
    "bfd": 3784, "bfd-echo": 3785,
    "biff": 512, "bootpc": 68, "bootps": 67, "dnsix": 195, "isakmp": 500, "mobile-ip": 434, "nameserver": 42,
    "netbios-dgm": 138, "netbios-ns": 137, "netbios-ss": 139, "non500-isakmp": 4500, "rip": 520, "ripv6": 521,
    "snmptrap": 162, "tftp": 69, "who": 513, "xdmcp": 177,
}  # fmt: skip
PortNames = Mapping[int, Mapping[str, int]]
"""Port names by protocol number."""

PORTS: PortNames = MappingProxyType({6: _TCP, 17: _UDP, 132: _TCP})
"""As iptables and the routers' lists have them."""

IcmpKind = tuple[int, int | None]
"""An ICMP type, and its code unless all codes are meant."""

_IPTABLES_ICMP: Mapping[str, IcmpKind] = {
    "echo-reply": (0, None), "pong": (0, None), "destination-unreachable": (3, None), "network-unreachable": (3, 0),
    "host-unreachable": (3, 1), "protocol-unreachable": (3, 2), "port-unreachable": (3, 3),
    "fragmentation-needed": (3, 4), "source-route-failed": (3, 5), "network-unknown": (3, 6), "host-unknown": (3, 7),
    "network-prohibited": (3, 9), "host-prohibited": (3, 10), "tos-network-unreachable": (3, 11),
    "tos-host-unreachable": (3, 12), "communication-prohibited": (3, 13), "host-precedence-violation": (3, 14),
    "precedence-cutoff": (3, 15), "source-quench": (4, None), "redirect": (5, None), "network-redirect": (5, 0),
    "host-redirect": (5, 1), "tos-network-redirect": (5, 2), "tos-host-redirect": (5, 3), "echo-request": (8, None),
    "ping": (8, None), "router-advertisement": (9, None), "router-solicitation": (10, None),
    "time-exceeded": (11, None), "ttl-exceeded": (11, None), "ttl-zero-during-transit": (11, 0),
    "ttl-zero-during-reassembly": (11, 1), "parameter-problem": (12, None), "ip-header-bad": (12, 0),
    "required-option-missing": (12, 1), "timestamp-request": (13, None), "timestamp-reply": (14, None),
    "address-mask-request": (17, None), "address-mask-reply": (18, None),
}  # fmt: skip
_IPTABLES_ICMPV6: Mapping[str, IcmpKind] = {
    "destination-unreachable": (1, None), "no-route": (1, 0), "communication-prohibited": (1, 1),
    "beyond-scope": (1, 2), "address-unreachable": (1, 3), "port-unreachable": (1, 4), "failed-policy": (1, 5),
    "reject-route": (1, 6), "packet-too-big": (2, None), "time-exceeded": (3, None), "ttl-exceeded": (3, None),
    "ttl-zero-during-transit": (3, 0), "ttl-zero-during-reassembly": (3, 1), "parameter-problem": (4, None),
    "bad-header": (4, 0), "unknown-header-type": (4, 1), "unknown-option": (4, 2), "echo-request": (128, None),
    "ping": (128, None), "echo-reply": (129, None), "pong": (129, None), "router-solicitation": (133, None),
    "router-advertisement": (134, None), "neighbour-solicitation": (135, None), "neighbor-solicitation": (135, None),
    "neighbour-advertisement": (136, None), "neighbor-advertisement": (136, None), "redirect": (137, None),
}  # fmt: skip
IPTABLES_ICMP: Mapping[Family, Mapping[str, IcmpKind]] = MappingProxyType(
    {Family.IPV4: _IPTABLES_ICMP, Family.IPV6: _IPTABLES_ICMPV6}
)
"""ICMP types by the names of iptables and ip6tables, in lower case."""

_CISCO_ICMP: Mapping[str, IcmpKind] = {
    "administratively-prohibited": (3, 13), "alternate-address": (6, None), "conversion-error": (31, None),
    "dod-host-prohibited": (3, 10), "dod-net-prohibited": (3, 9), "echo": (8, None), "echo-reply": (0, None),
    "general-parameter-problem": (12, 0), "host-isolated": (3, 8), "host-precedence-unreachable": (3, 14),
    "host-redirect": (5, 1), "host-tos-redirect": (5, 3), "host-tos-unreachable": (3, 12), "host-unknown": (3, 7),
    "host-unreachable": (3, 1), "information-reply": (16, None), "information-request": (15, None),
    "mask-reply": (18, None), "mask-request": (17, None), "mobile-redirect": (32, None), "net-redirect": (5, 0),
    "net-tos-redirect": (5, 2), "net-tos-unreachable": (3, 11), "net-unreachable": (3, 0), "network-unknown": (3, 6),
    "no-room-for-option": (12, 2), "option-missing": (12, 1), "packet-too-big": (3, 4), "parameter-problem": (12, None),
    "port-unreachable": (3, 3), "precedence-unreachable": (3, 15), "protocol-unreachable": (3, 2),
    "reassembly-timeout": (11, 1), "redirect": (5, None), "router-advertisement": (9, None),
    "router-solicitation": (10, None), "source-quench": (4, None), "source-route-failed": (3, 5),
    "time-exceeded": (11, None), "timestamp-reply": (14, None), "timestamp-request": (13, None),
    "traceroute": (30, None), "ttl-exceeded": (11, 0), "unreachable": (3, None),
}  # fmt: skip
_CISCO_ICMPV6: Mapping[str, IcmpKind] = {
    "beyond-scope": (1, 2), "destination-unreachable": (1, 3), "echo-reply": (129, None), "echo-request": (128, None),
    "header": (4, 0), "hop-limit": (3, 0), "mld-query": (130, None), "mld-reduction": (132, None),
    "mld-report": (131, None), "nd-na": (136, None), "nd-ns": (135, None), "next-header": (4, 1), "no-admin": (1, 1),
    "no-route": (1, 0), "packet-too-big": (2, None), "parameter-option": (4, 2), "parameter-problem": (4, None),
    "port-unreachable": (1, 4), "reassembly-timeout": (3, 1), "redirect": (137, None), "renum-command": (138, 0),
    "renum-result": (138, 1), "renum-seq-number": (138, 255), "router-advertisement": (134, None),
    "router-renumbering": (138, None), "router-solicitation": (133, None), "time-exceeded": (3, None),
    "unreachable": (1, None),
}  # fmt: skip
CISCO_ICMP: Mapping[Family, Mapping[str, IcmpKind]] = MappingProxyType(
    {Family.IPV4: _CISCO_ICMP, Family.IPV6: _CISCO_ICMPV6}
)
"""ICMP types by the names of IOS."""


def port_number(word: str, protocol: int, names: PortNames = PORTS) -> int:
    """A port by number, or by its name under tcp, udp or sctp. Raises BadInput."""
    if word.isascii() and word.isdigit() and len(word) <= 6 and int(word) <= HIGHEST_PORT:
        return int(word)
    number = names.get(protocol, {}).get(word.lower())
    if number is None:
        raise BadInput(f"'{word}' is not a port")
    return number


def icmp_kind(type_word: str, code_word: str | None, names: Mapping[str, IcmpKind]) -> IcmpKind:
    """An ICMP type, by name or number, with an optional code by number. Raises BadInput."""
    named = names.get(type_word.lower())
    if named is not None:
        if code_word is not None and named[1] is not None:
            raise BadInput(f"'{type_word}' has its code already")
        return named[0], named[1] if code_word is None else _read_byte(code_word)
    return _read_byte(type_word), None if code_word is None else _read_byte(code_word)


def _read_byte(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255):
        raise BadInput(f"'{word}' is not an ICMP type or code")
    return int(word)


def masked_addresses(address: int, mask: int) -> Spans:
    """Return the IPv4 addresses equal to `address` in the bits of `mask`.

    Raises BadInput beyond MOST_BLOCKS.
    """
    wild = ~mask & 0xFFFFFFFF
    tail = (~wild & (wild + 1)).bit_length() - 1  # the wild bits below the lowest one that counts make one block
    gaps = [1 << bit for bit in range(tail, 32) if wild >> bit & 1]
    if 1 << len(gaps) > MOST_BLOCKS:
        raise BadInput(
            f"the mask has gaps that make {1 << len(gaps)} blocks of addresses; at most {MOST_BLOCKS} are read"
        )
    starts = [address & mask]
    for gap in gaps:
        starts += [start | gap for start in starts]
    return union(Span(start, start + (1 << tail) - 1) for start in starts)


def prefix_spans(text: str, family: Family) -> Spans:
    """Read ``10.0.0.0/8``, ``10.0.0.0/255.0.0.0`` or an address; bits below the mask are ignored. Raises BadInput."""
    address_text, slash, mask_text = text.partition("/")
    found, address = parse_address(address_text, whole=text)
    if found is not family:
        raise BadInput(f"'{text}' is not an IPv{family.value} prefix")
    if not slash:
        return (Span(address, address),)
    if mask_text.count(".") == 3:
        if family is Family.IPV6:
            raise BadInput(f"'{text}' is not a prefix")
        return masked_addresses(address, parse_address(mask_text)[1])
    if not (mask_text.isascii() and mask_text.isdigit() and len(mask_text) <= 3 and int(mask_text) <= family.bits):
        raise BadInput(f"'{text}' is not a prefix: its length must be 0..{family.bits}")
    length = int(mask_text)
    network = address >> (family.bits - length) << (family.bits - length)
    prefix = Prefix(family, network, length)
    return (Span(prefix.network, prefix.last),)

"""Rules of packet filters that track connections, in front of the lists.

They sort out packets of no connection.

    invalid, untracked ──▶ drop
    new                ──▶ opens      SYN without ACK, an ICMP request, or a packet of another protocol; else drop
    SYN of an answerer ──▶ drop
    ICMP error         ──▶ errors_7   drop if its sender is tenant 7's, and the quoted packet was not on its way there
    between strangers  ──▶ drop       neither end is a tenant's, so no list is asked, whatever the operator permits

Lists are asked about the packet that opened the connection, which the kernel shows with every packet of it (`ct
original`, `--ctorigsrc`). So each packet is decided, and counted, by the rule that permits its connection at present,
as `policy/connections.py` says, and a changed list cuts what it forbids with the transaction that writes it. The kernel
remembers a connection when its first packet has left the filter, and drops what would open one while its table is full.

Both directions of a connection must pass this filter. The kernel puts fragments together first, so none come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

OPENS, REPLIES, OURS, ERRORS = "opens", "replies", "ours", "errors"
_REQUESTS: Mapping[Family, tuple[int, tuple[int, ...], int]] = {
    Family.IPV4: (ICMP, (8, 13, 15), ICMPV6),
    Family.IPV6: (ICMPV6, (128,), ICMP),
}
"""ICMP's number, the types that ask for something, and the other IP version's ICMP, which opens nothing."""
_ICMP_NAME = {Family.IPV4: "icmp", Family.IPV6: "icmpv6"}
_INVALID, _RELATED, _NEW, UNTRACKED = 1, 4, 8, 64
CONFIRMED = 8
"""The bit of a connection's status that says that its first packet has passed."""
OPENER_UNKNOWN, ANSWERER_UNKNOWN = 0x2000_0000, 0x4000_0000
"""Bits of a connection's mark: this end decided alone about the first packet, so it does not know the connection."""
_UNKNOWN = OPENER_UNKNOWN | ANSWERER_UNKNOWN
_TO_ANSWERER, _TO_OPENER = 0, 1
"""Directions, in numbers as nft lists them."""


def errors_name(tenant: int) -> str:
    """The chain of ICMP errors from addresses of a tenant (its number)."""
    return f"errors_{tenant}"


# ---------------------------------------------------------------------------------------------------------- nftables


def nftables_chains(family: Family) -> Iterator[tuple[str, list[str]]]:
    """Yield the chains that packets of every table meet, by name."""
    protocol, requests, foreign = _REQUESTS[family]
    name = _ICMP_NAME[family]
    ports = (f"meta l4proto {number} th {side} 0 drop" for number in (TCP, UDP) for side in ("sport", "dport"))
    asks = (f"meta l4proto {protocol} {name} type {kind} {name} code 0 return" for kind in requests)
    syn, nothing_else = f"meta l4proto {TCP} tcp flags & 0x17 == 0x02 return", f"meta l4proto {TCP} drop"
    yield OPENS, [*ports, syn, nothing_else, *asks, f"meta l4proto {protocol} drop", f"meta l4proto {foreign} drop"]
    yield REPLIES, [f"meta l4proto {TCP} tcp flags & 0x12 == 0x02 drop"]


def nftables_errors(ip: str, prefixes: Sequence[str]) -> list[str]:
    """Return the rules of a tenant's chain of ICMP errors.

    `ip` is nft's word for the IP version.
    """
    answerers = (f"ct direction {_TO_OPENER} ct original {ip} daddr {prefix} return" for prefix in prefixes)
    openers = (f"ct direction {_TO_ANSWERER} ct original {ip} saddr {prefix} return" for prefix in prefixes)
    return [*answerers, *openers, "drop"]


def nftables_rules(ip: str, *, mixed: bool = False) -> list[str]:
    """Return the rules in front of lists.

    The map `errors` leads to tenants' chains of ICMP errors. `mixed`: among stateless rules, untracked packets pass on
    to what decides alone, and an end that does not know a connection drops its packets by itself.
    """
    strangers = f"ct state {UNTRACKED:#x} {ip} saddr != @{OURS} {ip} daddr != @{OURS} drop"
    known = [f"ct direction {way} meta l4proto 0 drop" for way in (_TO_ANSWERER, _TO_OPENER)]
    return [
        f"ct state {_INVALID:#x} drop",
        *([strangers, *known] if mixed else [f"ct state {UNTRACKED:#x} drop", f"ct mark & {_UNKNOWN:#x} != 0 drop"]),
        f"ct state {_NEW:#x} jump {OPENS}",
        f"ct direction {_TO_OPENER} jump {REPLIES}",
        f"ct state {_RELATED:#x} {ip} saddr != @{OURS} {ip} daddr != @{OURS} drop",
        f"ct state {_RELATED:#x} {ip} saddr vmap @{ERRORS}",
        f"ct original {ip} saddr != @{OURS} ct original {ip} daddr != @{OURS} drop",
    ]


# ---------------------------------------------------------------------------------------------------------- iptables


def iptables_chains(family: Family, owned: Mapping[int, Sequence[Prefix]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the chains in front of lists. `owned` has the prefixes of each tenant's number."""
    _, requests, _ = _REQUESTS[family]
    ports = (f"-p {name} -m {name} --{side} 0 -j DROP" for name in ("tcp", "udp") for side in ("sport", "dport"))
    option = "-p icmp -m icmp --icmp-type" if family is Family.IPV4 else "-p icmpv6 -m icmp6 --icmpv6-type"
    asks = (f"{option} {kind}/0 -j RETURN" for kind in requests)
    syn = "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j RETURN"
    yield OPENS, (*ports, syn, "-p tcp -j DROP", *asks, "-p icmp -j DROP", "-p icmpv6 -j DROP")
    either = (
        _about(option, prefix, "-j RETURN")
        for prefixes in owned.values()
        for prefix in prefixes
        for option in ("--ctorigsrc", "--ctorigdst")
    )
    yield OURS, (*either, "-j DROP")
    senders = [
        (_match_source(prefix), errors_name(tenant)) for tenant, prefixes in owned.items() for prefix in prefixes
    ]
    receivers = (f"-d {prefix} -j RETURN" for prefixes in owned.values() for prefix in prefixes if prefix.length)
    asked, known = ([f"{source}-j {target}" for source, target in senders], (f"{each}-j RETURN" for each, _ in senders))
    yield ERRORS, (*asked, *known, *receivers, "-j DROP")


def iptables_errors(owned: Mapping[int, Sequence[Prefix]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each tenant's chain of ICMP errors. `owned` has the prefixes of each tenant's number."""
    for tenant, prefixes in owned.items():
        yield errors_name(tenant), (*_make_iptables_errors(prefixes), "-j DROP")


def _make_iptables_errors(prefixes: Iterable[Prefix]) -> Iterator[str]:
    for prefix in prefixes:
        for option, way in (("--ctorigdst", "REPLY"), ("--ctorigsrc", "ORIGINAL")):
            yield _about(option, prefix, f"-m conntrack --ctdir {way} -j RETURN")


def _about(option: str, prefix: Prefix, rest: str) -> str:
    """A line about an address of the packet that opened the connection."""
    return f"-m conntrack {option} {prefix} {rest}" if prefix.length else rest


def _match_source(prefix: Prefix) -> str:
    return f"-s {prefix} " if prefix.length else ""


def iptables_rules() -> Iterator[str]:
    """Yield the rules in front of lists."""
    yield "-m conntrack --ctstate INVALID,UNTRACKED -j DROP"
    yield f"-m conntrack --ctstate NEW -j {OPENS}"
    yield "-p tcp -m tcp --tcp-flags SYN,ACK SYN -m conntrack --ctdir REPLY -j DROP"
    yield f"-m conntrack --ctstate RELATED -j {ERRORS}"
    yield f"-j {OURS}"

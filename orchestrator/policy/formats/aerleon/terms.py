"""Read what a term matches besides addresses: protocols, ports, ICMP types, `tcp-established`.

The names of protocols and ICMP types are Aerleon's, with the ICMP codes of each type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orchestrator.errors import BadInput
from orchestrator.policy.fields import ICMP_CODE
from orchestrator.policy.formats.aerleon.library import Term
from orchestrator.policy.formats.lineboxes import Axes
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, parse_protocol
from orchestrator.policy.space import ALL_BYTES, ALL_PORTS, WHOLE
from orchestrator.policy.spans import Span, Spans, intersect, union
from orchestrator.policy.tcpflags import ESTABLISHED_SET

PROTOCOLS: Mapping[str, int] = {
    "hopopt": 0, "icmp": 1, "igmp": 2, "ggp": 3, "ipip": 4, "tcp": 6, "egp": 8, "igp": 9, "udp": 17, "rdp": 27,
    "ipv6": 41, "ipv6-route": 43, "fragment": 44, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58,
    "ipv6-nonxt": 59, "ipv6-opts": 60, "ospf": 89, "pim": 103, "vrrp": 112, "l2tp": 115, "sctp": 132, "udplite": 136,
}  # fmt: skip
_ICMP = {
    "echo-reply": 0, "unreachable": 3, "source-quench": 4, "redirect": 5, "alternate-address": 6, "echo-request": 8,
    "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
    "timestamp-request": 13, "timestamp-reply": 14, "information-request": 15, "information-reply": 16,
    "mask-request": 17, "mask-reply": 18, "conversion-error": 31, "mobile-redirect": 32,
}  # fmt: skip
_ICMPV6 = {
    "destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4, "echo-request": 128,
    "echo-reply": 129, "multicast-listener-query": 130, "multicast-listener-report": 131,
    "multicast-listener-done": 132, "router-solicit": 133, "router-advertisement": 134, "neighbor-solicit": 135,
    "neighbor-advertisement": 136, "redirect-message": 137, "router-renumbering": 138,
    "icmp-node-information-query": 139, "icmp-node-information-response": 140,
    "inverse-neighbor-discovery-solicitation": 141, "inverse-neighbor-discovery-advertisement": 142,
    "version-2-multicast-listener-report": 143, "home-agent-address-discovery-request": 144,
    "home-agent-address-discovery-reply": 145, "mobile-prefix-solicitation": 146, "mobile-prefix-advertisement": 147,
    "certification-path-solicitation": 148, "certification-path-advertisement": 149,
    "multicast-router-advertisement": 151, "multicast-router-solicitation": 152, "multicast-router-termination": 153,
}  # fmt: skip
ICMP_TYPES: Mapping[int, Mapping[str, int]] = {ICMP: _ICMP, ICMPV6: _ICMPV6}
"""The types of each ICMP by name; numbers are not taken."""

ICMP_CODES: Mapping[str, frozenset[int]] = {
    "unreachable": frozenset(range(16)),
    "redirect": frozenset(range(4)),
    "router-advertisement": frozenset({0, 16}),
    "time-exceeded": frozenset(range(2)),
    "destination-unreachable": frozenset(range(8)),
    "parameter-problem": frozenset(range(4)),
    "router-renumbering": frozenset({0, 1, 255}),
    "icmp-node-information-query": frozenset(range(3)),
    "icmp-node-information-response": frozenset(range(3)),
}
"""The codes that may stand beside a type."""


STATELESS = frozenset(
    {"arista", "arista_tp", "aruba", "brocade", "cisco", "cisconx", "ciscoxr", "juniper", "juniperevo", "nokiasrl"}
)
"""Platforms where `tcp-established` is about TCP flags; elsewhere it is about connections."""

_NO_HIGH_PORTS = frozenset({"aruba", "nokiasrl"})
_HIGH_PORTS = (Span(1024, ALL_PORTS[0].high),)
_ESTABLISHED = frozenset({"established", "tcp-established"})


def adds_high_ports(platform: str, words: Collection[str]) -> bool:
    """Return whether `established` adds the high ports to a term's own for a target.

    That is so where replies are known by them: `tcp-established` is about flags alone.
    """
    return platform in STATELESS - _NO_HIGH_PORTS or platform == "nsxv" or "nostate" in words


def services_of(
    term: Term, platform: str, words: Collection[str], *, stateless: bool
) -> tuple[Sequence[Axes], list[str]]:
    """Return one set of axes per alternative of a term, and reasons for inexactness.

    `words` are the target's. `stateless`: take connections for what a list without connection tracking can say.
    """
    reasons = [f"the option '{option}' is not looked at here" for option in term.options if option not in _ESTABLISHED]
    try:
        replies = "established" in term.options and adds_high_ports(platform, words)
        found = _of_protocols(term, _HIGH_PORTS if replies else ())
    except BadInput as error:
        return ({},), [*reasons, error.reason]
    if _ESTABLISHED.intersection(term.options):
        if platform not in STATELESS and not stateless:
            return found, [*reasons, f"connections, which {platform} tracks, are not tracked here"]
        if any(axes.get("protocols") != 1 << TCP for axes in found):
            return found, [*reasons, "`established` is about tcp alone here"]
        found = [{**axes, "tcp_flags": ESTABLISHED_SET, "fragments": WHOLE} for axes in found]
    return found, reasons


def _of_protocols(term: Term, also_to: Spans) -> list[Axes]:
    """Return the alternatives of a term's protocols and ports.

    `also_to` are destination ports besides its own.
    """
    named, excepted = ([_read_protocol(word) for word in words] for words in (term.protocols, term.protocols_except))
    ports = _ports(term, also_to)
    if excepted or not named:
        protocols = ALL_BYTES & ~sum(1 << number for number in set(excepted))
        if ports != [{}] or term.icmp_types or (named and excepted):
            raise BadInput("ports and ICMP types are looked at under named protocols only")
        return [{"protocols": protocols} if excepted else {}]
    found: list[Axes] = []
    for number in dict.fromkeys(named):
        if ports != [{}] and number not in WITH_PORTS:
            raise BadInput("ports are looked at under tcp, udp and sctp only")
        icmp = _icmp(term, number)
        found += [{"protocols": 1 << number, **ways, **icmp} for ways in ports]
    return found


def _read_protocol(word: str) -> int:
    return PROTOCOLS[word] if word in PROTOCOLS else parse_protocol(word)


def _ports(term: Term, also_to: Spans) -> list[Axes]:
    """Return the ports of both sides, in two alternatives if a term says "either side"."""
    source, destination, either = (_make_spans(term, key) for key in ("source_port", "destination_port", "port"))
    if also_to:
        destination = union((*(destination or ()), *also_to))
    pairs = [(source, destination)]
    if either is not None:
        pairs = [(_intersect_spans(source, either), destination), (source, _intersect_spans(destination, either))]
    found: list[Axes] = []
    for low, high in pairs:
        axes: Axes = {}
        for axis, members in (("source_ports", low), ("destination_ports", high)):
            if members is not None:
                axes |= {axis: members, "fragments": WHOLE}
        found.append(axes)
    return found


def _make_spans(term: Term, key: str) -> Spans | None:
    ports = term.ports[key]
    if any(not 0 <= low <= high <= ALL_PORTS[0].high for low, high in ports):
        raise BadInput("a range of ports is out of order")
    return union(Span(low, high) for low, high in ports) if ports else None


def _intersect_spans(one: Spans | None, other: Spans) -> Spans:
    return other if one is None else intersect(one, other)


def _icmp(term: Term, number: int) -> Axes:
    """The types and the codes that a term asks for, under one of its protocols."""
    if not term.icmp_types:
        return {}
    if number not in (ICMP, ICMPV6):
        raise BadInput("only icmp and icmpv6 have types")
    names: Mapping[str, int] = ICMP_TYPES[number]
    unknown = [name for name in term.icmp_types if name not in names]
    if unknown:
        raise BadInput(f"'{unknown[0][:40]}' is not a type of this ICMP")
    axes: Axes = {"icmp_types": sum(1 << names[name] for name in set(term.icmp_types)), "fragments": WHOLE}
    if term.icmp_codes:
        axes[ICMP_CODE.axis] = sum(1 << code for code in set(term.icmp_codes) if 0 <= code <= 255)
    return axes

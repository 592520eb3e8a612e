"""Objects and object groups of an ASA: addresses, protocols with ports, ports, ICMP types.

object network WEB              object-group network SERVERS          object-group service WEB-PORTS tcp
 host 192.0.2.1                  network-object object WEB             port-object eq https
object service HTTPS             group-object MORE-SERVERS            object-group service SHOP
 service tcp destination eq 443 object-group protocol TRANSPORT        service-object udp destination eq 53
                                 protocol-object tcp                   service-object object HTTPS
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.formats.cisco.accesslist import Config
from orchestrator.policy.formats.cisco.fieldwords import PORT_OPERATORS, PROTOCOLS, Words, port_spans
from orchestrator.policy.formats.cisco.groups import address_range, members
from orchestrator.policy.formats.lineboxes import Axes, Sides, icmp_axes, sides_of
from orchestrator.policy.formats.portnames import (
    CISCO_ICMP,
    PORTS,
    IcmpKind,
    PortNames,
    icmp_kind,
    masked_addresses,
    prefix_spans,
)
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP, WITH_PORTS
from orchestrator.policy.space import WHOLE
from orchestrator.policy.spans import Span, Spans, union

ASA_PROTOCOLS: Mapping[str, int] = MappingProxyType(
    {**PROTOCOLS, "icmp6": ICMPV6, "igrp": 9, "ipsec": 50, "pptp": 47, "snp": 109}
)
_TCP_ONLY = {
    "aol": 5190, "cifs": 3020, "citrix-ica": 1494, "ctiqbe": 2748, "h323": 1720, "imap4": 143, "kerberos": 750,
    "lotusnotes": 1352, "nfs": 2049, "pcanywhere-data": 5631, "pptp": 1723, "rsh": 514, "rtsp": 554,
}  # fmt: skip
_UDP_ONLY = {
    "cifs": 3020, "http": 80, "kerberos": 750, "nfs": 2049, "pcanywhere-status": 5632, "radius": 1645,
    "radius-acct": 1646, "rtsp": 554, "secureid-udp": 5510, "vxlan": 4789, "www": 80,
}  # fmt: skip
ASA_PORTS: PortNames = MappingProxyType(
    {TCP: {**PORTS[TCP], **_TCP_ONLY}, UDP: {**PORTS[UDP], **_UDP_ONLY}, 132: {**PORTS[TCP], **_TCP_ONLY}}
)
_ICMP6: Mapping[str, IcmpKind] = {
    "echo": (128, None), "echo-reply": (129, None), "membership-query": (130, None), "membership-report": (131, None),
    "membership-reduction": (132, None), "neighbor-advertisement": (136, None), "neighbor-redirect": (137, None),
    "neighbor-solicitation": (135, None), "packet-too-big": (2, None), "parameter-problem": (4, None),
    "router-advertisement": (134, None), "router-renumbering": (138, None), "router-solicitation": (133, None),
    "time-exceeded": (3, None), "unreachable": (1, None),
}  # fmt: skip
_ICMP: Mapping[int, Mapping[str, IcmpKind]] = {ICMP: CISCO_ICMP[Family.IPV4], ICMPV6: _ICMP6}


def addresses(words: Words, config: Config) -> Sides:
    """``host A``, ``A MASK``, ``A/length`` or ``range A B`` with names for addresses. Raises BadInput."""
    first = words.take("an address")
    if first == "range":
        family, span = address_range(Words(tuple(config.names.get(word, word) for word in words.left())))
        words.take("an address")
        words.take("an address")
        return {family: (span,)}
    if first == "host":
        family, value = parse_address(_read_group_name(words.take("an address"), config))
        return {family: (Span(value, value),)}
    if "/" in first:
        family = Family.IPV6 if ":" in first else Family.IPV4
        return {family: prefix_spans(first, family)}
    family, value = parse_address(_read_group_name(first, config))
    if family is Family.IPV6:
        raise BadInput(f"'{first[:80]}' needs a length, as in {first[:80]}/64")
    return {family: masked_addresses(value, _read_subnet_mask(words.take("a subnet mask")))}


def network_object(name: str, config: Config) -> Sides:
    """Return the addresses of an object.

    Raises BadInput if it is missing, empty, or named by a host name.
    """
    return sides_of(_read_network_object(name, config))


def network_group(name: str, config: Config) -> Sides:
    """Return the addresses of an object group.

    Raises BadInput if it is missing, empty, or unreadable.
    """

    def read_line(words: Words) -> list[tuple[Family, Span]]:
        if not words.take_if("network-object"):
            raise BadInput(f"'{words.peek()[:40]}' is not known in a network group")
        if words.take_if("object"):
            return _read_network_object(words.take("the name of an object"), config)
        found = _list_pairs(addresses(words, config))
        words.done()
        return found

    return config.groups.once(
        ("network", name), lambda: sides_of(members(name, ("network",), config.groups, read_line))
    )


def service_object(name: str, config: Config) -> tuple[Axes, ...]:
    """The protocols and ports of an object. Raises BadInput."""
    return tuple(_read_service_object(name, config))


def services(name: str, config: Config) -> tuple[Axes, ...]:
    """Return the axes of a protocol group, or of a service group of several protocols.

    Raises BadInput.
    """

    def read_line(words: Words) -> list[Axes]:
        if words.take_if("protocol-object"):
            return _of_service(words)
        if not words.take_if("service-object"):
            raise BadInput(f"'{words.peek()[:40]}' is not known in a group of services")
        if words.take_if("object"):
            return _read_service_object(words.take("the name of an object"), config)
        return _of_service(words)

    return config.groups.once(
        ("services", name), lambda: tuple(members(name, ("protocol", "service"), config.groups, read_line))
    )


def holds_ports(name: str, config: Config) -> bool:
    """Whether a name is that of a group of ports (``object-group service NAME tcp``)."""
    group = config.groups.get(name)
    return group is not None and group.kind == "service" and group.qualifier != ""


def ports(name: str, config: Config, number: int) -> Spans:
    """Return the ports of a port group for a protocol.

    Raises BadInput if the group is for another protocol.
    """
    group = config.groups[name]
    if number not in {ASA_PROTOCOLS.get(one) for one in group.qualifier.split("-")}:
        raise BadInput(f"the object group {name[:80]} holds ports of {group.qualifier}")

    def read_line(words: Words) -> list[Span]:
        if not words.take_if("port-object"):
            raise BadInput(f"'{words.peek()[:40]}' is not known in a group of ports")
        found = port_spans(words, number, ASA_PORTS)
        words.done()
        return list(found)

    return config.groups.once(
        ("ports", name, number), lambda: union(members(name, ("service",), config.groups, read_line))
    )


def icmp_types(name: str, config: Config, number: int) -> int:
    """The ICMP types of an ``object-group icmp-type``, as a set of bits. Raises BadInput."""

    def read_line(words: Words) -> list[int]:
        if not words.take_if("icmp-object"):
            raise BadInput(f"'{words.peek()[:40]}' is not known in a group of ICMP types")
        kind, code = icmp_kind(words.take("an ICMP type"), None, _ICMP[number])
        words.done()
        if code is not None:
            raise BadInput("a group of ICMP types holds no codes")
        return [kind]

    return sum(1 << kind for kind in set(members(name, ("icmp-type",), config.groups, read_line)))


def icmp(words: Words, number: int) -> Axes:
    """Read an ICMP type by name or number, with its code if one follows.

    No type narrows nothing.
    """
    word = words.peek()
    if not (word.isdigit() or word in _ICMP[number]):
        return {}
    words.take("an ICMP type")
    kind, code = icmp_kind(word, words.take("a code") if words.peek().isdigit() else None, _ICMP[number])
    return icmp_axes(kind, code)


def protocol(word: str) -> int | None:
    """A protocol by name or number; None for all. Raises BadInput."""
    if word in ("ip", "0"):
        return None
    if word in ASA_PROTOCOLS:
        return ASA_PROTOCOLS[word]
    if word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255:
        return int(word)
    raise BadInput(f"the protocol '{word[:40]}' is not known here")


def _read_network_object(name: str, config: Config) -> list[tuple[Family, Span]]:
    found: list[tuple[Family, Span]] = []
    for words in _find_object_lines(name, "network", config):
        if words.peek() in ("nat", "description"):
            continue
        if words.peek() == "fqdn":
            raise BadInput(f"the addresses of {name[:80]} are those of a host name")
        words.take_if("subnet")
        found += _list_pairs(addresses(words, config))
        words.done()
    if not found:
        raise BadInput(f"the object {name[:80]} is empty")
    return found


def _read_service_object(name: str, config: Config) -> list[Axes]:
    found: list[Axes] = []
    for words in _find_object_lines(name, "service", config):
        if words.take_if("service"):
            found += _of_service(words)
        elif words.peek() != "description":
            raise BadInput(f"'{words.peek()[:40]}' is not known in an object")
    if not found:
        raise BadInput(f"the object {name[:80]} is empty")
    return found


def _find_object_lines(name: str, kind: str, config: Config) -> Sequence[Words]:
    found = config.objects.get(name)
    if found is None or found.kind != kind:
        raise BadInput(f"there is no object {kind} {name[:80]}")
    return [Words(line) for line in found.lines]


def _of_service(words: Words) -> list[Axes]:
    """``tcp [source eq 80] [destination eq 80]``, ``tcp-udp ...``, ``icmp echo`` or a protocol alone."""
    name = words.take("a protocol")
    found = []
    for one in ("tcp", "udp") if name == "tcp-udp" else (name,):
        here = Words(words.left())
        number = protocol(one)
        axes: Axes = {} if number is None else {"protocols": 1 << number}
        if number in WITH_PORTS:
            if here.take_if("source"):
                axes |= {"source_ports": port_spans(here, number, ASA_PORTS), "fragments": WHOLE}
            if here.take_if("destination") or here.peek() in PORT_OPERATORS:
                axes |= {"destination_ports": port_spans(here, number, ASA_PORTS), "fragments": WHOLE}
        elif number in (ICMP, ICMPV6):
            axes |= icmp(here, number)
        here.done()
        found.append(axes)
    return found


def _read_group_name(word: str, config: Config) -> str:
    return config.names.get(word, word)


def _read_subnet_mask(text: str) -> int:
    family, mask = parse_address(text)
    wild = ~mask & 0xFFFFFFFF
    if family is Family.IPV6 or wild & (wild + 1):
        raise BadInput(f"'{text[:40]}' is no subnet mask; a router's list would take it for a wildcard mask")
    return mask


def _list_pairs(sides: Sides) -> list[tuple[Family, Span]]:
    """List the spans of addresses, each with its IP version."""
    return [(family, span) for family, spans in sides.items() for span in spans]

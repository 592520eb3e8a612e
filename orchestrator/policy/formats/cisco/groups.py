"""Object groups of routers and switches: sets of addresses, ports, and protocols with ports.

IOS        object-group network|service NAME
IOS-XR     object-group network ipv4|ipv6 NAME, object-group port NAME; lines may be numbered, inner groups are
           object-group NAME
NX-OS      object-group ip address|port NAME; lines may be numbered, masks are wildcards
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.formats.cisco.accesslist import Group, Groups
from orchestrator.policy.formats.cisco.fieldwords import Words, address, port_spans, protocol, transport, wildcard
from orchestrator.policy.formats.lineboxes import Axes
from orchestrator.policy.formats.portnames import masked_addresses, prefix_spans
from orchestrator.policy.space import ALL_ADDRESSES
from orchestrator.policy.spans import Span, Spans, union

_T = TypeVar("_T")
LineReader = Callable[[Words], list[_T]]
_INNER = ("group-object", "object-group")
_DEEPEST = 50
_MOST_MEMBERS = 65_536
_WILDCARDS = "ip address"
_NETWORKS: Mapping[Family, Collection[str]] = {
    Family.IPV4: ("network", "network ipv4", _WILDCARDS),
    Family.IPV6: ("network ipv6", "ipv6 address"),
}


def network(name: str, groups: Groups, family: Family) -> Spans:
    """Return the addresses of a network group.

    Raises BadInput if it is missing, empty, or unreadable.
    """
    by_wildcard = name in groups and groups[name].kind == _WILDCARDS

    def read_line(words: Words) -> list[Span]:
        return _network_line(words, family, by_wildcard=by_wildcard)

    return groups.once(("network", name, family), lambda: union(members(name, _NETWORKS[family], groups, read_line)))


def service(name: str, groups: Groups) -> tuple[Axes, ...]:
    """Return the protocols and ports of a service group, one set of axes a line.

    Raises BadInput as `network` does.
    """
    return groups.once(("service", name), lambda: tuple(members(name, ("service",), groups, _service_line)))


def ports(name: str, groups: Groups, number: int) -> Spans:
    """Return the ports of a port group, with names read for a protocol.

    Raises BadInput as `network` does.
    """

    def read_line(words: Words) -> list[Span]:
        found = port_spans(words, number)
        words.done()
        return list(found)

    return groups.once(("port", name, number), lambda: union(members(name, ("port", "ip port"), groups, read_line)))


def members(name: str, kinds: Collection[str], groups: Mapping[str, Group], read: LineReader[_T]) -> list[_T]:
    """Read the lines of a group and of nested groups.

    A group that occurs several times counts once.

    Raises BadInput for a group that is missing, empty, of another kind, or in itself.
    """
    found: list[_T] = []
    done: set[str] = set()

    def walk_group(name: str, above: tuple[str, ...]) -> None:
        group = groups.get(name)
        if group is None or group.kind not in kinds:
            raise BadInput(f"there is no object-group {'|'.join(kinds)} {name[:80]}")
        if name in above or len(above) > _DEEPEST:
            raise BadInput(f"the object group {name[:80]} holds itself, or groups too deep inside")
        if name in done:
            return
        for numbered in group.lines:
            words = numbered[1:] if numbered[0].isdigit() and len(numbered) > 1 else numbered
            if words[0] in _INNER and len(words) == 2:
                walk_group(words[1], (*above, name))
            elif words[0] not in ("description", "remark"):
                found.extend(read(Words(words)))
        done.add(name)
        if len(found) > _MOST_MEMBERS:
            raise BadInput(f"the object group {name[:80]} has more than {_MOST_MEMBERS} members")

    walk_group(name, ())
    if not found:
        raise BadInput(f"the object group {name[:80]} is empty")
    return found


def address_range(words: Words) -> tuple[Family, Span]:
    """``A B``, the lower one first."""
    (low_family, low), (high_family, high) = (parse_address(words.take("an address")) for _ in range(2))
    if low_family is not high_family or low > high:
        raise BadInput("a range must be of addresses of one IP version, the lower one first")
    return low_family, Span(low, high)


def _network_line(words: Words, family: Family, *, by_wildcard: bool) -> list[Span]:
    """Read ``host A``, ``A MASK``, ``A/length``, ``range A B`` or ``any``.

    The mask is a subnet mask, except on NX-OS.
    """
    first = words.take("an address")
    found: Spans
    if first == "any":
        found = ALL_ADDRESSES[family]
    elif first == "host":
        found = prefix_spans(words.take("an address"), family)
    elif first == "range":
        of, span = address_range(words)
        if of is not family:
            raise BadInput(f"its addresses are not of IPv{family.value}")
        found = (span,)
    elif "/" in first:
        found = prefix_spans(first, family)
    elif by_wildcard:
        found = wildcard(address(first, Family.IPV4), words.take("a wildcard mask"))
    else:
        found = masked_addresses(address(first, Family.IPV4), address(words.take("a mask"), Family.IPV4))
    words.done()
    return list(found)


def _service_line(words: Words) -> list[Axes]:
    """Read one line of a service group.

    Examples: ``tcp eq 80``, ``udp source range 1 5 eq 53``, ``tcp-udp gt 1023``, ``icmp echo``, or a protocol alone.
    """
    name = words.take("a protocol")
    found = []
    for one in ("tcp", "udp") if name == "tcp-udp" else (name,):
        here = Words(words.left())
        axes: Axes = {}
        number = protocol(one, Family.IPV4)
        if number is not None:
            axes["protocols"] = 1 << number
        if here.take_if("source"):
            transport(here, number, "source_ports", axes)
        transport(here, number, "destination_ports", axes)
        here.done()
        found.append(axes)
    return found

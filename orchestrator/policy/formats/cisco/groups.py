"""Object groups: named sets of addresses, and named lists of protocols with their ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.formats.axes import Axes
from orchestrator.policy.formats.cisco.config import Group
from orchestrator.policy.formats.cisco.fields import Words, address, protocol, transport
from orchestrator.policy.formats.names import masked, prefix_spans
from orchestrator.policy.spans import Span, Spans, union

_T = TypeVar("_T")
_DEEPEST = 50


def network(name: str, groups: Mapping[str, Group]) -> Spans:
    """The IPv4 addresses of a network group. Raises BadInput if it is missing, empty, or cannot be read."""
    return union(_members(name, "network", groups, _network_line))


def service(name: str, groups: Mapping[str, Group]) -> tuple[Axes, ...]:
    """The protocols and ports of a service group, one set of axes a line. Raises BadInput as `network` does."""
    return tuple(_members(name, "service", groups, _service_line))


def _members(
    name: str, kind: str, groups: Mapping[str, Group], read: Callable[[Words], list[_T]], depth: int = 0
) -> list[_T]:
    """What the lines of a group and of the groups inside it come to."""
    group = groups.get(name)
    if group is None or group.kind != kind:
        raise BadInput(f"there is no object-group {kind} {name[:80]}")
    if depth > _DEEPEST:
        raise BadInput(f"the object group {name[:80]} holds itself, or groups too deep inside")
    found: list[_T] = []
    for _, _, words in group.lines:
        if words[0] == "group-object" and len(words) == 2:
            found += _members(words[1], kind, groups, read, depth + 1)
        elif words[0] != "description":
            found += read(Words(words))
    if not found:
        raise BadInput(f"the object group {name[:80]} is empty")
    return found


def _network_line(words: Words) -> list[Span]:
    """``host A``, ``A MASK`` (here a subnet mask, not a wildcard), ``A/length``, ``range A B`` or ``any``."""
    first = words.take("an address")
    if first == "any":
        found: Spans = (Span(0, 0xFFFFFFFF),)
    elif first == "host":
        found = prefix_spans(words.take("an address"), Family.IPV4)
    elif first == "range":
        (low_family, low), (high_family, high) = (parse_address(words.take("an address")) for _ in range(2))
        if (low_family, high_family) != (Family.IPV4, Family.IPV4) or low > high:
            raise BadInput("a range of an object group must be of IPv4 addresses, the lower one first")
        found = (Span(low, high),)
    elif "/" in first:
        found = prefix_spans(first, Family.IPV4)
    else:
        found = masked(address(first, Family.IPV4), address(words.take("a mask"), Family.IPV4))
    words.done()
    return list(found)


def _service_line(words: Words) -> list[Axes]:
    """``tcp eq 80``, ``udp source range 1 5 eq 53``, ``tcp-udp gt 1023``, ``icmp echo`` or a protocol alone."""
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

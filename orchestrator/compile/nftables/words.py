"""nft's words for what a packet is looked at and for values, by IP version.

With `first` they ask for the packet that opened the connection, which the kernel shows with every packet of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.compile.filters.filterlists import Line
from orchestrator.compile.nftables.space import Axis, Shape
from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.maskedword import code_points_under, split_word
from orchestrator.policy.ports import HIGHEST_PORT

IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}
ICMP_NAME = {Family.IPV4: "icmp", Family.IPV6: "icmpv6"}
_HIGHEST_BYTE = 255


def field(axis: Axis, family: Family, *, icmp: bool = False, first: bool = False) -> str:
    """The field of an axis. ICMP types and codes stand where others have ports."""
    if axis is Axis.PROTOCOL:
        return "ct protocol" if first else "meta l4proto"
    if axis in (Axis.SOURCE, Axis.DESTINATION):
        return address(family, "saddr" if axis is Axis.SOURCE else "daddr", first=first)
    source = axis is Axis.SOURCE_PORTS
    if first:
        return f"ct original {'proto-src' if source else 'proto-dst'}"
    if icmp:
        return f"{ICMP_NAME[family]} {'type' if source else 'code'}"
    return f"th {'sport' if source else 'dport'}"


def address(family: Family, side: str, *, first: bool) -> str:
    """The field of one address, `saddr` or `daddr`."""
    return f"{'ct original ' if first else ''}{IP[family]} {side}"


def interval(axis: Axis, family: Family, low: int, high: int) -> str:
    """Write neighbouring values of an axis, as a prefix where they are one."""
    if axis not in (Axis.SOURCE, Axis.DESTINATION):
        return str(low) if low == high else f"{low}-{high}"
    first, size = format_address(family, low), high - low + 1
    if size == 1:
        return first
    if size & (size - 1) == 0 and low % size == 0:
        return f"{first}/{family.bits - size.bit_length() + 1}"
    return f"{first}-{format_address(family, high)}"


def spell_owned(prefix: Prefix) -> str:
    """Write a prefix as nft lists it: one address without its length."""
    return str(prefix).removesuffix(f"/{prefix.family.bits}")


def within(axis: Axis, low: int, high: int, *, icmp: bool) -> tuple[int, int] | None:
    """Return the part of an interval that a field can hold.

    ICMP types are bytes where others have 16-bit ports.
    """
    if icmp and axis in (Axis.SOURCE_PORTS, Axis.DESTINATION_PORTS):
        return (low, min(high, _HIGHEST_BYTE)) if low <= _HIGHEST_BYTE else None
    return low, high


def conditions(line: Line, family: Family, *, first: bool = False) -> list[tuple[Axis | None, str]]:
    """Return a rule's conditions, each with its axis; flags and DSCP have none."""
    found: list[tuple[Axis | None, str]] = []
    for axis, prefix in ((Axis.SOURCE, line.source), (Axis.DESTINATION, line.destination)):
        if prefix.length:
            asked = interval(axis, family, prefix.network, prefix.last)
            found.append((axis, f"{field(axis, family, first=first)} {asked}"))
    if line.protocol >= 0:
        found.append((Axis.PROTOCOL, f"{field(Axis.PROTOCOL, family, first=first)} {line.protocol}"))
    return found + (_about_first(line, family) if first else _about_header(line, family))


def _about_first(line: Line, family: Family) -> list[tuple[Axis | None, str]]:
    """Return conditions about the ports of the packet that opened a connection.

    An ICMP type and its code are one number there, in the place of the destination's port.
    """
    if line.icmp_type >= 0:
        low, high = line.opening_icmp
        values = interval(Axis.DESTINATION_PORTS, family, low, high)
        return [(None, f"{field(Axis.DESTINATION_PORTS, family, first=True)} {values}")]
    both = (Axis.SOURCE_PORTS, line.source_ports), (Axis.DESTINATION_PORTS, line.destination_ports)
    return [
        (axis, f"{field(axis, family, first=True)} {interval(axis, family, *ports)}")
        for axis, ports in both
        if ports != (0, HIGHEST_PORT)
    ]


def _about_header(line: Line, family: Family) -> list[tuple[Axis | None, str]]:
    """Return conditions about a packet's own ports, ICMP type and code, flags, and DSCP."""
    found: list[tuple[Axis | None, str]] = []
    for axis, ports, number in (
        (Axis.SOURCE_PORTS, line.source_ports, line.icmp_type),
        (Axis.DESTINATION_PORTS, line.destination_ports, line.icmp_code),
    ):
        if number >= 0:
            found.append((axis, f"{field(axis, family, icmp=True)} {number}"))
        elif ports != (0, HIGHEST_PORT):
            found.append((axis, f"{field(axis, family)} {interval(axis, family, *ports)}"))
    (flags, of_flags), (_, of_dscp) = split_word(line.word_value, line.word_mask)
    if of_flags:
        found.append((None, f"tcp flags & {of_flags:#04x} == {flags:#04x}"))
    if of_dscp:
        found.append((None, f"{IP[family]} dscp {_code_points(code_points_under(line.word_value, line.word_mask))}"))
    return found


def _code_points(points: Sequence[int]) -> str:
    """Write values of DSCP as one, as a range, or as a set.

    nft has masks, but in IPv6 it compares with the wrong bytes behind them (seen with 1.0.6).
    """
    first, last = (f"{points[end]:#04x}" for end in (0, -1))
    if points[-1] - points[0] == len(points) - 1:
        return first if first == last else f"{first}-{last}"
    return f"{{ {', '.join(f'{point:#04x}' for point in points)} }}"


def shape_fields(shape: Shape, family: Family, *, icmp: bool) -> tuple[list[str], list[str]]:
    """The fields of a table's key, and the same under their masks."""
    fields, masked = [], []
    for axis, length in ((Axis.SOURCE, shape.source), (Axis.DESTINATION, shape.destination)):
        if length:
            name = field(axis, family)
            fields.append(name)
            mask = ((1 << length) - 1) << (family.bits - length)
            masked.append(name if length == family.bits else f"{name} & {format_address(family, mask)}")
    for axis, looked_at in ((Axis.SOURCE_PORTS, shape.source_port), (Axis.DESTINATION_PORTS, shape.destination_port)):
        if looked_at:
            fields.append(field(axis, family, icmp=icmp))
            masked.append(fields[-1])
    if shape.flags:
        fields.append("tcp flags")
        masked.append(f"tcp flags & {shape.flags:#04x}")
    return fields, masked


def shape_key(shape: Shape, line: Line, family: Family) -> str:
    """The element that a row is in its shape's table."""
    parts = []
    if shape.source:
        parts.append(format_address(family, line.source.network))
    if shape.destination:
        parts.append(format_address(family, line.destination.network))
    if shape.source_port:
        parts.append(str(line.slots[0][0]))
    if shape.destination_port:
        parts.append(str(line.slots[1][0]))
    if shape.flags:
        parts.append(f"{line.word_value:#04x}")
    return " . ".join(parts)

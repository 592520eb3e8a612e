"""The connection table of a fake machine's kernel, for the fakes of packet filters.

A connection is remembered when its first packet has passed the filter; where there is no room, the filter does not see
packets of unknown connections. It is *new* until the other end has answered. Both ends of TCP must have come as far as
a segment says; a SYN of a closed connection opens another one in its place. The fake knows neither windows nor
identifiers of ICMP nor time, and puts no fragments together.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from orchestrator.compile.filters.filtertracking import CONFIRMED
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import ACK, FIN, RST, SYN, Ends, ends_of
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

_REQUESTS = {Family.IPV4: (ICMP, (8, 13, 15, 17)), Family.IPV6: (ICMPV6, (128, 139))}
"""ICMP's number and the types with which the kernel has a connection begin."""


class State(enum.IntFlag):
    """The state of a packet's connection, in the bits of `ct state`."""

    INVALID = 1
    ESTABLISHED = 2
    RELATED = 4
    NEW = 8
    UNTRACKED = 64


@dataclass(slots=True)
class Label:
    """The mark of a connection, which a filter may write.

    `is_confirmed`: its first packet has passed.
    """

    mark: int = 0
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of looking up a packet's connection.

    It is the state, the packet that opened the connection, and whether this packet comes from the end that answers.
    """

    state: State
    first: Packet | None = None
    is_reply: bool = False
    label: Label = field(default_factory=Label)

    def load(self, name: str) -> int:
        """A field of the connection, as nftables names it behind `ct`."""
        if name == "state":
            return int(self.state)
        if name == "direction":
            return int(self.is_reply) if self.first is not None else -1
        first = self.first
        if first is None:
            return -1
        if name in ("mark", "status"):
            return self.label.mark if name == "mark" else CONFIRMED * self.label.is_confirmed
        upper, lower = slot_values(first)
        kind = upper << 8 | lower if first.protocol in (ICMP, ICMPV6) else first.destination_port
        ports = first.protocol in (TCP, UDP)
        ip = "ip" if first.family is Family.IPV4 else "ip6"
        return {
            "protocol": first.protocol,
            f"original {ip} saddr": first.source,
            f"original {ip} daddr": first.destination,
            "original proto-src": first.source_port if ports else 0,
            "original proto-dst": kind if ports or kind > first.destination_port else 0,
        }[name]


NOTHING_SEEN = Seen(State.UNTRACKED)
"""Of a packet whose connection nobody has looked up."""


@dataclass(slots=True)
class _Known:
    """A connection: its first packet, whether it was answered, and who has closed it."""

    first: Packet
    label: Label
    answered: bool = False
    closed: frozenset[bool] = frozenset()
    """By whether the answerer has: both, if one of them has reset it."""


@dataclass(slots=True)
class FakeConnections:
    """All connections of a machine; `most` of them at once.

    `without_room` counts the packets that would have opened one more.
    """

    most: int = 1 << 18
    without_room: int = 0
    _known: dict[Ends, _Known] = field(default_factory=dict)

    def fill_table(self) -> None:
        """Leave no room for any more."""
        self.most = len(self._known)

    def empty_table(self) -> None:
        """Forget all, and have room again."""
        self._known.clear()
        self.most = 1 << 18

    def statistics(self) -> str:
        """The kernel's statistics, as far as anybody reads them."""
        return f"entries  drop early_drop\n{len(self._known):08x}  {self.without_room:08x} 00000000\n"

    def look_up(self, packet: Packet, quoted: Packet | None = None) -> Seen:
        """Return what the filter is shown of a packet's connection."""
        if quoted is not None:
            return self._look_up_error(packet, quoted)
        if packet.later_fragment:
            return Seen(State.INVALID)
        known = self._known.get(ends_of(packet))
        if known is not None and not (_opens_connection(packet) and len(known.closed) == 2):
            return _follow(known, packet)
        return Seen(State.NEW, packet) if _may_begin(packet) else Seen(State.INVALID)

    def drops(self, packet: Packet, quoted: Packet | None) -> bool:
        """Return whether a packet finds no room for its connection, and count it if so."""
        lost = quoted is None and not packet.later_fragment and not self._has_room(ends_of(packet))
        self.without_room += lost
        return lost

    def _has_room(self, ends: Ends) -> bool:
        return ends in self._known or len(self._known) < self.most

    def remember(self, packet: Packet, seen: Seen) -> bool:
        """Remember the connection of a packet that has passed the filter.

        False where there is no room for it.
        """
        if seen.state is not State.NEW or seen.first is None:
            return True
        ends = ends_of(packet)
        known = self._known.get(ends)
        if known is not None and known.first is seen.first:
            return True
        if not self._has_room(ends):
            return False
        seen.label.is_confirmed = True
        self._known[ends] = _Known(seen.first, seen.label)
        return True

    def _look_up_error(self, error: Packet, quoted: Packet) -> Seen:
        known = self._known.get(ends_of(quoted))
        if known is None or error.destination != quoted.source:
            return Seen(State.INVALID)
        return Seen(State.RELATED, known.first, is_reply=not _is_reply(known, quoted), label=known.label)


def _opens_connection(packet: Packet) -> bool:
    return packet.protocol == TCP and packet.tcp_flags & (SYN | ACK | RST | FIN) == SYN


def _is_reply(known: _Known, packet: Packet) -> bool:
    """Return whether a packet comes from the end that did not open its connection."""
    if packet.protocol in (ICMP, ICMPV6):
        return packet.icmp_type != known.first.icmp_type
    return (packet.source, packet.source_port) != (known.first.source, known.first.source_port)


def _follow(known: _Known, packet: Packet) -> Seen:
    """Return the look-up of a known connection's packet, and update the connection."""
    reply, flags = _is_reply(known, packet), packet.tcp_flags
    icmp = packet.protocol in (ICMP, ICMPV6)
    if (icmp and slot_values(packet)[1] != slot_values(known.first)[1]) or (
        packet.protocol == TCP and not _fits(known, packet)
    ):
        return Seen(State.INVALID)
    if packet.protocol == TCP and flags & RST:
        known.closed = frozenset({False, True})
    elif packet.protocol == TCP and flags & FIN:
        known.closed |= {reply}
    known.answered |= reply
    state = State.ESTABLISHED if known.answered else State.NEW
    return Seen(state, known.first, is_reply=reply, label=known.label)


def _fits(known: _Known, packet: Packet) -> bool:
    """Return whether a segment may come in a connection's state."""
    flags, reply = packet.tcp_flags, _is_reply(known, packet)
    if (flags & SYN and flags & (FIN | RST)) or not flags & (SYN | ACK | RST):
        return False
    if known.answered:
        return True
    return reply or bool(flags & SYN and not flags & ACK)


def _may_begin(packet: Packet) -> bool:
    """Return whether the kernel lets a packet begin a connection.

    The filter may still drop it.
    """
    if packet.protocol == TCP:
        flags = packet.tcp_flags
        return flags & (SYN | ACK) != SYN | ACK and not flags & RST and bool(flags & (SYN | ACK))
    if packet.protocol in (ICMP, ICMPV6):
        own, types = _REQUESTS[packet.family]
        return packet.protocol != own or packet.icmp_type in types
    return True

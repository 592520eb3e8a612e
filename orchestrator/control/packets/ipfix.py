"""The packet log as IPFIX messages (RFC 7011): a template an IP version, records.

| version 10 u16 | length u16 | export time u32 | sequence u32 | observation domain u32 | sets ...
  template set   | 2 | length | template id, fields | (information element u16, length u16) ...
  data set       | template id | length | records ...

The information elements are IANA's own. Names of variable length come last: the selector's is the rule, for a rule
selects packets; the VRF's is the tenant; the observation domain's is `domain/host`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Action, Direction
from orchestrator.policy.protocols import ICMP, ICMPV6
from orchestrator.store.packetlog import LoggedPacket

VERSION = 10
LONGEST = 1400
"""Octets of a message: what goes through any network in one piece."""

_HEADER = struct.Struct("!HHIII")
_SET = struct.Struct("!HH")
_TEMPLATES = 2
_VARIABLE = 0xFFFF
_OBSERVATION_DOMAIN = 1

_TIME, _EVENT, _DIRECTION, _OCTETS, _PROTOCOL, _FLAGS = (323, 8), (233, 1), (61, 1), (1, 8), (4, 1), (6, 2)
_DSCP = (195, 1)
_PORTS = ((7, 2), (11, 2))
_ICMP = {Family.IPV4: (32, 2), Family.IPV6: (139, 2)}
_ADDRESSES = {Family.IPV4: ((8, 4), (12, 4)), Family.IPV6: ((27, 16), (28, 16))}
_NAMES = ((335, _VARIABLE), (236, _VARIABLE), (300, _VARIABLE))
"""Names of selector, VRF, observation domain."""

_TEMPLATE_OF = {Family.IPV4: 256, Family.IPV6: 257}
_EVENTS = {Action.PERMIT: 1, Action.DENY: 3}
"""firewallEvent: flow created; flow denied."""


def _list_fields(family: Family) -> tuple[tuple[int, int], ...]:
    return (
        _TIME, _EVENT, _DIRECTION, _OCTETS, _PROTOCOL, _FLAGS, *_PORTS, _ICMP[family], _DSCP,
        *_ADDRESSES[family], *_NAMES,
    )  # fmt: skip


@dataclass(slots=True)
class Exporter:
    """Makes messages; `sequence` counts the data records that were put into messages so far."""

    sequence: int = 0

    def messages(
        self, domain: str, records: Sequence[LoggedPacket], now: int, *, with_templates: bool
    ) -> tuple[bytes, ...]:
        """Return messages with the records, of at most `LONGEST` bytes; `now` in seconds.

        A single longer record makes a longer message.
        """
        if not records:
            return ()
        found = [self._pack_message(_pack_templates(), 0, now)] if with_templates else []
        for family in Family:
            mine = [_pack_record(domain, each) for each in records if each.packet.family is family]
            for run in _runs(mine):
                body = b"".join(run)
                data = _SET.pack(_TEMPLATE_OF[family], _SET.size + len(body)) + body
                found.append(self._pack_message(data, len(run), now))
        return tuple(found)

    def _pack_message(self, sets: bytes, records: int, now: int) -> bytes:
        header = _HEADER.pack(VERSION, _HEADER.size + len(sets), now, self.sequence, _OBSERVATION_DOMAIN)
        self.sequence = (self.sequence + records) & 0xFFFFFFFF
        return header + sets


def _pack_templates() -> bytes:
    body = b"".join(
        struct.pack("!HH", _TEMPLATE_OF[family], len(_list_fields(family)))
        + b"".join(struct.pack("!HH", *field) for field in _list_fields(family))
        for family in Family
    )
    return _SET.pack(_TEMPLATES, _SET.size + len(body)) + body


def _pack_record(domain: str, record: LoggedPacket) -> bytes:
    packet = record.packet
    size = packet.family.bits // 8
    pinged = packet.protocol == (ICMP if packet.family is Family.IPV4 else ICMPV6)
    kind, code = slot_values(packet)
    fixed = struct.pack(
        "!QBBQBHHHHB",
        int(record.time.timestamp() * 1000),
        _EVENTS[record.action],
        int(record.direction is Direction.EGRESS),
        record.length,
        packet.protocol,
        packet.tcp_flags,
        packet.source_port,
        packet.destination_port,
        kind << 8 | code if pinged else 0,
        packet.dscp,
    )
    addresses = packet.source.to_bytes(size, "big") + packet.destination.to_bytes(size, "big")
    return fixed + addresses + b"".join(map(_text, (record.rule, record.tenant or "", f"{domain}/{record.host}")))


def _text(name: str) -> bytes:
    """Write a name of up to 254 bytes, as ours are."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded


def _runs(records: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the records in runs, each of which fits into one message."""
    run: list[bytes] = []
    size = 0
    for record in records:
        if run and _HEADER.size + _SET.size + size + len(record) > LONGEST:
            yield run
            run, size = [], 0
        run.append(record)
        size += len(record)
    if run:
        yield run

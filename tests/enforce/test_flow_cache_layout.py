"""Rows of a flow cache as bytes of a map: what is packed is read back, and a flow is what the rows can tell apart."""

from __future__ import annotations

import struct

import pytest
from flow_cache_samples import packets_near, row_lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.filters.flowcache import MOST_ROWS
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.bpf.layout import SET_BYTES, FlowSet, pack, unpack
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.model import Packet

laws = settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
STAMP = Stamp(17, bytes(range(16)))
LOOKED = {Family.IPV4: (48, "<IIHHBB"), Family.IPV6: (64, "<QQQQHHBB")}
"""Where a set's bytes say which bits of a packet its rows look at."""


@laws
@given(row_lists(), st.integers(0, 2))
def test_what_is_packed_is_read_back(rows: tuple[CacheRow, ...], check: int) -> None:
    held = FlowSet(rows, STAMP, check)
    octets = pack(held, 99, lambda cookie: cookie + 1000)
    assert len(octets) == SET_BYTES
    assert unpack(octets, {cookie + 1000: cookie for cookie in (1, 2, 3)}) == held


@laws
@given(row_lists().filter(bool), st.data())
def test_packets_of_one_flow_meet_the_same_row(rows: tuple[CacheRow, ...], data: st.DataObject) -> None:
    octets = pack(FlowSet(rows, STAMP), 99, lambda cookie: cookie)
    met: dict[tuple[int, ...], CacheRow | None] = {}
    for _ in range(12):
        packet = data.draw(packets_near(rows))
        if packet.later_fragment:
            continue
        key = flow(octets, packet)
        row = next((row for row in rows if row.holds(packet)), None)
        assert met.setdefault(key, row) == row


def flow(octets: bytes, packet: Packet) -> tuple[int, ...]:
    """The bits of a packet that a set says its rows look at, with the packet's IP version."""
    at, form = LOOKED[packet.family]
    icmp = packet.protocol == OWN_ICMP[packet.family]
    ports = (packet.icmp_type, packet.icmp_code) if icmp else (packet.source_port, packet.destination_port)
    sides = [packet.source, packet.destination]
    half = (1 << 64) - 1
    halves = sides if packet.family is Family.IPV4 else [part for side in sides for part in (side >> 64, side & half)]
    fields = (*halves, *ports, packet.protocol, packet.tcp_flags)
    looked = struct.unpack_from(form, octets, at)
    return (packet.family, *(field & bits for field, bits in zip(fields, looked, strict=True)))


def test_what_no_row_looks_at_is_no_part_of_a_flow() -> None:
    everybody = FlowSet((CacheRow.of(struct.pack("<IIIIHHHHBBBB", 0, 0xFFFFFFFF, 0xC0000200, 0xFF, 0, 0xFFFF, 80, 0,
                                                 6, 0, 0, 0), 1, ()),), STAMP)  # type: ignore[arg-type]  # fmt: skip
    looked = struct.unpack_from(LOOKED[Family.IPV4][1], pack(everybody, 1, lambda cookie: cookie), 48)
    assert looked == (0, 0xFFFFFF00, 0, 0xFFFF, 0xFF, 0)


def test_more_rows_than_there_is_room_for_are_refused() -> None:
    (row,) = [CacheRow.of(bytes(28), 1, ())]  # type: ignore[arg-type]
    pack(FlowSet((row,) * MOST_ROWS, STAMP), 1, lambda cookie: cookie)
    with pytest.raises(Refused, match=f"room for {MOST_ROWS}"):
        pack(FlowSet((row,) * (MOST_ROWS + 1), STAMP), 1, lambda cookie: cookie)


def test_more_rows_than_there_is_room_for_are_none_of_ours() -> None:
    """Whoever wrote that into the map: it is no reason to read on behind its end."""
    octets = bytearray(pack(FlowSet((), STAMP), 1, lambda cookie: cookie))
    octets[32:36] = (MOST_ROWS + 1).to_bytes(4, "little")
    with pytest.raises(ValueError, match=f"{MOST_ROWS + 1} rows"):
        unpack(bytes(octets), {})

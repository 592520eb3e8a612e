"""Ways to search general rows that are compared with each other: each finds the first row that holds a packet."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from flow_cache_samples import packets_near, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.bench.classifiers.searchtables import Masked, prefixes, recursive, tuple_space
from orchestrator.bench.classifiers.suite import firsts, sample
from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.compile.servers.bitvectors import MOST_RULES, Vectors, bit_vectors
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP
from orchestrator.policy.spans import Span

lists = row_lists(12).map(lambda rows: [row for row in rows if row.family is Family.IPV4]).filter(bool)


def masked(packet: Packet) -> Masked:
    icmp = packet.protocol == ICMP
    ports = (packet.icmp_type, packet.icmp_code) if icmp else (packet.source_port, packet.destination_port)
    return packet.source, packet.destination, *ports, packet.protocol, packet.tcp_flags


def whole_of(rows: list[CacheRow], data: st.DataObject) -> list[Packet]:
    near = data.draw(st.lists(packets_near(tuple(rows)), min_size=10, max_size=10))
    return [packet for packet in near if packet.family is Family.IPV4 and not packet.later_fragment]


def classes_of(vectors: Vectors, packet: Masked) -> list[int]:
    *values, protocol, flags = packet
    return [
        int(axis.classes[np.searchsorted(axis.starts, value, side="right") - 1])
        for axis, value in zip(vectors.axes, (*values, protocol << 8 | flags), strict=True)
    ]


@settings(max_examples=examples(30))
@given(lists, st.data())
def test_tuple_space_finds_the_first_row(rows: list[CacheRow], data: st.DataObject) -> None:
    space = tuple_space(rows)
    for packet in whole_of(rows, data):
        wanted = next((number for number, row in enumerate(rows) if row.holds(packet)), None)
        found, asked = space.first(masked(packet))
        assert found == wanted
        assert asked <= len(space.shapes)


@settings(max_examples=examples(30))
@given(lists, st.data())
def test_tables_of_combined_classes_say_what_vectors_say(rows: list[CacheRow], data: st.DataObject) -> None:
    vectors = bit_vectors(rows)
    made = recursive(vectors, len(rows), 1 << 20)
    addresses, ports, upper, final = made.tables
    for packet in whole_of(rows, data):
        source, destination, source_port, port, protocol = classes_of(vectors, masked(packet))
        row = final[addresses[source, destination], upper[ports[source_port, port], protocol]]
        wanted = vectors.first(packet)
        assert int(row) == (MOST_RULES if wanted is None else wanted)


def test_tables_that_are_too_large_are_not_made() -> None:
    port = Span(0, 65535)
    rows = [
        CacheRow(Family.IPV4, Span(at, at), Span(at, at), port, port, Span(0, 255), (0, 0), Verdict.PERMIT)
        for at in range(20)
    ]
    with pytest.raises(TooLarge, match=r"the first table would have 441 cells"):
        recursive(bit_vectors(rows), len(rows), 100)
    assert recursive(bit_vectors(rows), len(rows), 1 << 20).memory_bytes > 0


@given(st.integers(0, 65535), st.integers(0, 65535))
def test_prefixes_are_a_span_and_nothing_else(one: int, other: int) -> None:
    span = Span(min(one, other), max(one, other))
    found = [*prefixes(span, 16)]
    ends = [(value, value + (0xFFFF & ~mask)) for value, mask in found]
    assert (ends[0][0], ends[-1][1]) == span
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ends))
    assert all(value & ~mask == 0 for value, mask in found)


@settings(max_examples=5)
@given(lists)
def test_packets_are_drawn_from_all_rows_and_each_is_in_one(rows: list[CacheRow]) -> None:
    drawn = sample(rows)
    few = drawn[:: len(drawn) // 8]
    for packet, row in zip(few, firsts(rows, few), strict=True):
        assert all(
            span.low <= value <= span.high
            for span, value in zip(
                (rows[row].source, rows[row].destination, rows[row].source_ports), packet[:3], strict=True
            )
        )

"""Searches of whole lists agree with the list gone through row by row; ClassBench's sets, and lists like them."""

from __future__ import annotations

import gzip
import random
import re
from functools import partial

import numpy as np
import pytest

from orchestrator.bench.classifier.classifierlists import FOLDER, KINDS, Listed, drawn, generate_list
from orchestrator.classify.columns import columns
from orchestrator.classify.packets import PACKET, Packets, halves, packet_of
from orchestrator.classify.search import IN_ORDER, WAYS, Search
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.protocols import UDP
from orchestrator.policy.space import ALL_ADDRESSES, WHOLE, Box
from orchestrator.policy.spans import Span, Spans

SETS = (
    sorted({re.sub(r"\.rules(\.gz)?$", "", path.name) for path in FOLDER.glob("*.rules*")}) if FOLDER.is_dir() else []
)


def agree(listed: Listed, packets: int, seed: int = 1) -> None:
    """Every way finds what going through the list finds, and some of it is asked of the boxes themselves."""
    boxes = listed.boxes()
    found = drawn(boxes, packets, seed)
    search = Search(Family.IPV4, boxes)
    wanted = search.first(found, IN_ORDER)
    for way in WAYS:
        wrong = np.flatnonzero(search.first(found, way) != wanted)
        assert not len(wrong), (way, packet_of(found[wrong[0]]))
    for place in range(0, packets, max(1, packets // 20)):
        packet = packet_of(found[place])
        assert next(row for row, box in enumerate(boxes) if box.holds(packet)) == wanted[place]


@pytest.mark.parametrize("kind", KINDS)
def test_generated_lists(kind: str) -> None:
    agree(Listed(generate_list(kind, 1_500), "generated"), 4_000)


def set_of(name: str) -> Listed:
    """A set of ClassBench's."""
    (path,) = FOLDER.glob(f"{name}.rules*")
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return Listed(read(text, "classbench", options=Options(classbench_action=None)).acl, name)


@pytest.mark.skipif(not SETS, reason="ACLFLOW_DATA names no folder with classbench/")
@pytest.mark.parametrize("name", SETS or ["none"])
def test_sets_of_classbench(name: str) -> None:
    agree(set_of(name), 4_000)


SPREAD = 40_000
"""So many addresses with gaps between them have more ranks than 16 bits can number."""


def spread(family: Family, draw: random.Random) -> tuple[list[Box], Packets]:
    """Rows over far more ranks of addresses than lie in a slab, on both sides, and packets at their ends.

    Short rows have their ends around the boundaries of slabs, so that some lie on either side and some on both.
    """
    step = 3 << (family.bits - 20)  # so that addresses differ in many bits
    hosts = tuple(Span(step * each, step * each) for each in range(SPREAD))
    near = [step * (32_768 * slab + 3 * each) + each % 2 for slab in (0, 1) for each in range(-8, 9)]
    near = sorted({address for address in near if address >= 0} | {0, step * (SPREAD - 1), (1 << family.bits) - 1})
    every = ALL_ADDRESSES[family]
    plain = partial(Box, family, WHOLE, 1 << UDP, source=every, destination=every)

    def some() -> Spans:
        low, high = sorted(draw.choices(near, k=2))
        return draw.choice([every, (Span(low, high),), (Span(low, low),)])

    def ports() -> Spans:
        low = draw.randrange(40)
        return (Span(low, low + draw.choice([0, 1, 7])),)

    def address() -> int:
        host = draw.choice([draw.randrange(SPREAD), draw.randrange(32_730, 32_800)])
        return draw.choice([draw.choice(near), step * host + draw.randrange(2)])

    rows = [
        plain(source=some(), destination=some(), source_ports=ports(), destination_ports=ports()) for _ in range(400)
    ]
    rows += [
        plain(source=hosts, destination_ports=ports()),
        plain(destination=hosts, source_ports=ports()),
    ]
    draw.shuffle(rows)
    found = np.zeros(8_000, PACKET)
    found["family"], found["protocol"] = family.value, UDP
    for name in ("source", "destination"):
        found[name] = [halves(family, address()) for _ in found]
        found[f"{name}_port"] = [draw.randrange(50) for _ in found]
    return rows, found


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("seed", range(3))
def test_more_ranks_than_16_bits_can_number(family: Family, seed: int) -> None:
    boxes, packets = spread(family, random.Random(seed))
    agree_everywhere(family, boxes, packets, share=SPREAD)


@pytest.mark.parametrize("family", Family)
def test_nodes_of_sides_with_65536_ranks_and_more(family: Family) -> None:
    """Most rows differ in destination and source port; of two pairs of these, many differ in sources, and in ports."""
    hosts = [(3 << (family.bits - 20)) * each for each in range(SPREAD)]
    plain = partial(Box, family, WHOLE, 1 << UDP, source=ALL_ADDRESSES[family], destination=ALL_ADDRESSES[family])

    def pair(host: int, port: int, **more: Spans) -> Box:
        return plain(destination=(Span(host, host),), source_ports=(Span(port, port),), **more)

    pairs = [pair(host, port) for host in hosts[:40] for port in range(40)]
    places, ports = range(0, SPREAD, SPREAD // 20), [*range(5, 65_536, 3_001), 65_535]
    alike = [pair(hosts[0], 0, source=(Span(hosts[each], hosts[each]),)) for each in places]
    alike += [pair(hosts[0], 1, destination_ports=(Span(port, port),)) for port in ports]
    every_other = plain(
        source=tuple(Span(host, host) for host in hosts), source_ports=(Span(50, 50),),
        destination_ports=tuple(Span(port, port) for port in range(1, 65_536, 2)),
    )  # fmt: skip
    asked = [(hosts[each] + more, port, 0) for each in places for more in (0, 1, 2) for port in (0, 1, 2, 50)]
    asked += [(1, source_port, port + more) for port in ports for more in (-1, 0) for source_port in (0, 1, 50)]
    packets = np.zeros(len(asked), PACKET)
    packets["family"], packets["protocol"] = family.value, UDP
    packets["source"] = [halves(family, source) for source, _, _ in asked]
    packets["source_port"] = [port for _, port, _ in asked]
    packets["destination_port"] = [port for _, _, port in asked]
    agree_everywhere(family, [*alike, *pairs, every_other], packets, share=64)


@pytest.mark.parametrize("family", Family)
def test_rows_of_wide_spans_that_are_left_to_the_last_tree(family: Family) -> None:
    """Their tree has a cell for each slab, and not one for all."""
    draw, step = random.Random(1), 3 << (family.bits - 20)
    hosts = tuple(Span(step * each, step * each) for each in range(SPREAD))
    plain = partial(Box, family, WHOLE, 1 << UDP, source=hosts, destination=hosts)

    def span(most: int, unit: int = 1) -> Spans:
        low, high = sorted(draw.choices(range(most), k=2))
        return (Span(unit * low, unit * high),)

    boxes = [
        plain(
            source=span(SPREAD, step),
            destination=span(SPREAD, step),
            source_ports=span(1_000),
            destination_ports=span(1_000),
        )
        for _ in range(600)
    ]
    packets = np.zeros(8_000, PACKET)
    packets["family"], packets["protocol"] = family.value, UDP
    for name in ("source", "destination"):
        packets[name] = [halves(family, step * draw.randrange(SPREAD)) for _ in packets]
        packets[f"{name}_port"] = [draw.randrange(1_000) for _ in packets]
    agree_everywhere(family, [*boxes, plain()], packets, share=64)


def agree_everywhere(family: Family, boxes: list[Box], packets: Packets, share: int) -> None:
    """Every way finds what going through the rows finds, where each row may become `share` entries."""
    search = Search.of(columns(family, boxes), share)
    wanted = search.first(packets, IN_ORDER)
    assert len(set(wanted.tolist())) > 20
    for way in WAYS:
        wrong = np.flatnonzero(search.first(packets, way) != wanted)
        assert not len(wrong), (way, len(wrong), packet_of(packets[wrong[0]]))

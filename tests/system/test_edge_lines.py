"""The lines of a real switch against the model: real packets to every chunk there is, and the switch's own words."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from system.edgebridge import EdgeBridge, edge_bridge
from system.shooting import POP

from orchestrator.compile.edgeprogram import Edge, FamilyLines, Way, edge_program
from orchestrator.compile.pipelines.edge import LINES_TOP
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.edge.chunks import Chunking
from orchestrator.edge.hashing import positions
from orchestrator.edge.lines import Lines
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.upkeep import keep
from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Family, format_address
from orchestrator.program.flows import FlowTable

SERVERS = 4
WAYS = tuple(Way(number, f"s{number}", 0x0AAC1F040000 + number) for number in range(1, SERVERS + 1))
SIXTEEN = EdgeSettings(ipv4_chunk=16, ipv6_chunk=48, functions=8, per_line=16)
KINDS = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
SOURCE_MAC = 0x0AAC1F020001


@pytest.fixture(scope="module")
def bridge(layout: Layout) -> Iterator[EdgeBridge]:
    lab = pop.up(layout, POP)
    with edge_bridge(lab, [way.port for way in WAYS]) as found:
        yield found


def lines_of(chunking: Chunking, keys: np.ndarray) -> Lines:
    """Lines for chunks, dealt out to the servers one after the other."""
    servers = np.arange(len(keys), dtype=np.int64) % SERVERS + 1
    return keep(None, keys, servers, SIXTEEN, "test").standing.lines(servers)


def edge_of(*families: FamilyLines) -> Edge:
    return Edge(("outside",), WAYS, (), families, FlowTable.of(()))


def frame(chunking: Chunking, key: int, host: int) -> bytes:
    """A UDP packet from outside to some address of a chunk."""
    family = chunking.family
    bits = family.bits
    destination = (key << (bits - chunking.length) | host % (1 << (bits - chunking.length))).to_bytes(bits // 8, "big")
    ethernet = GATEWAY_MAC.to_bytes(6, "big") + SOURCE_MAC.to_bytes(6, "big") + struct.pack("!H", KINDS[family])
    udp = struct.pack("!HHHH", 4096, 53, 8, 0)
    if family is Family.IPV4:
        return ethernet + struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0) + b"\xc0\0\2\1" + destination + udp
    source = bytes.fromhex("20010db8") + bytes(11) + b"\1"
    return ethernet + struct.pack("!IHBB", 0x60000000, len(udp), 17, 64) + source + destination + udp


def test_every_line_counts_what_the_model_says_for_packets_to_every_chunk_there_is(bridge: EdgeBridge) -> None:
    chunking = SIXTEEN.chunking(Family.IPV4)
    lines = lines_of(chunking, np.arange(0, 1 << 16, 64, dtype=np.uint64))
    bridge.load(edge_program(edge_of(FamilyLines(chunking, lines)), domain="d1", generation=1))
    before = bridge.counted(Family.IPV4, len(lines))
    keys = list(range(1 << 16))
    random.Random(7).shuffle(keys)
    for start in range(0, len(keys), 1 << 13):  # a cache entry each: its room is limited
        bridge.send([frame(chunking, key, 257 * key + 1) for key in keys[start : start + (1 << 13)]])
        bridge.forget()
    counted = bridge.counted(Family.IPV4, len(lines)) - before
    every = np.arange(1 << 16, dtype=np.uint64)
    first = lines.first(every[~np.isin(every, lines.exception)])
    expected = np.bincount(first[first >= 0], minlength=len(lines))
    assert counted.tolist() == expected.tolist()
    assert expected.sum() > len(lines.holds) > 0


@pytest.mark.parametrize("family", Family)
def test_the_switch_says_of_chunks_what_the_model_says(bridge: EdgeBridge, family: Family) -> None:
    """Held by a line, matched by one falsely, with an entry of its own, and nobody's."""
    chunking = SIXTEEN.chunking(family)
    drawn = random.Random(11)
    keys = np.array(sorted(drawn.sample(range(1 << chunking.length), 512)), np.uint64)
    lines = lines_of(chunking, keys)
    bridge.load(edge_program(edge_of(FamilyLines(chunking, lines)), domain="d1", generation=2))
    others = np.array(drawn.sample(range(1 << chunking.length), 3000), np.uint64)
    false = others[lines.first(others) >= 0][:8]
    asked = [*keys[:24].tolist(), *lines.exception[:8].tolist(), *false.tolist(), *others[:24].tolist()]
    assert len(false) == 8
    first = dict(zip(asked, lines.first(np.array(asked, np.uint64)).tolist(), strict=True))
    for key, server in zip(asked, lines.server_of(np.array(asked, np.uint64)).tolist(), strict=True):
        shown = trace(bridge, chunking, key)
        assert left_by(bridge, shown) == server, shown
        if key not in lines.exception:
            assert line_of(shown) == first[key], shown
            assert one_hot(shown) == positions(np.array([key], np.uint64), lines.shape.bases, 288)[0].tolist()


def trace(bridge: EdgeBridge, chunking: Chunking, key: int) -> str:
    bits = chunking.family.bits
    address = format_address(chunking.family, key << (bits - chunking.length) | 5)
    kind, field = ("ip", "nw_dst") if chunking.family is Family.IPV4 else ("ipv6", "ipv6_dst")
    return bridge.trace(f"{kind},dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,{field}={address}")


def left_by(bridge: EdgeBridge, shown: str) -> int:
    """The number of the server that a traced packet leaves for, by port and MAC address; -1 where it is dropped."""
    out = re.findall(r"^\s+output:(\d+)$", shown, re.MULTILINE)
    if not out:
        assert "drop" in shown
        return -1
    (way,) = [way for way in WAYS if bridge.channel.ports[way.port] == int(out[0])]
    assert f"set_field:{way.mac.to_bytes(6, 'big').hex(':')}->eth_dst" in shown
    return way.number


def line_of(shown: str) -> int:
    """The line that decided, by its priority."""
    (priority,) = re.findall(r"^40\. .*?priority (\d+)", shown, re.MULTILINE)
    return LINES_TOP - int(priority) if int(priority) else -1


def one_hot(shown: str) -> list[int]:
    """The bits that the functions hashed the chunk to, in their order."""
    return [int(value, 0) for value in re.findall(r"^\s*31\. reg15=(\w+),", shown, re.MULTILINE)]

"""Replay a cached capture through a list of 10,000 rules on two cores.

One packet in three is of IPv6.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from pathlib import Path

import numpy as np

from orchestrator.bench.classifier.lists import generate_list
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.classify.captures import open_capture
from orchestrator.classify.deciding import Deciding
from orchestrator.classify.replay import replay
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId

RULES = 10_000
CORES = 2
_FLOWS = 20_000
_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def measure(results: Results, *, quick: bool, progress: Progress) -> None:
    """Measure millions of packets a second of a capture, one in three of IPv6.

    A packet has 64 bytes, or 84 with IPv6.
    """
    progress("replay of a capture through 10,000 rules")
    packets, rounds = (300_000, 3) if quick else (1_000_000, 5)
    acl = generate_list("acl", RULES)
    deciding = Deciding(Acl((*acl.rules[: RULES // 2], *_in_ipv6(RULES // 2))))
    cores = min(CORES, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.pcap"
        _write(path, packets)
        spent = [_seconds(path, deciding, cores, packets) for _ in range(rounds + 1)][1:]
    results.figures["replay_mpps"] = Figure.of(
        [packets / each / 1e6 for each in spent], "Mpps", Target(5, at_most=False)
    )
    results.notes.append(f"replay: {packets:,} packets, {_FLOWS:,} flows, {RULES:,} rules, {cores} cores, page cache")


def _seconds(path: Path, deciding: Deciding, cores: int, packets: int) -> float:
    began = time.perf_counter()
    with open_capture(str(path)) as capture:
        found = replay([capture], deciding, threads=cores)
    assert found.all.packets == packets
    return time.perf_counter() - began


def _in_ipv6(rules: int) -> list[Rule]:
    """Rules for hosts of one network on one side, and for a port."""
    return [
        Rule(
            RuleId(f"six{number}"),
            Action.PERMIT if number % 2 else Action.DENY,
            source=Addresses((Prefix(Family.IPV6, 0x20010DB8 << 96 | number % 700 << 64, 64),)),
            destination=Addresses((Prefix(Family.IPV6, 0x20010DB8_FFFF << 80 | number, 128),)),
        )
        for number in range(rules)
    ]


def _write(path: Path, packets: int) -> None:
    """A capture of TCP segments, whose flows are drawn at random."""
    draw = np.random.default_rng(1)
    frames = [_frame(draw, six=number % 3 == 0) for number in range(_FLOWS)]
    records = [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames]
    with path.open("wb") as file:
        file.write(_HEADER)
        for _ in range(0, packets, 100_000):
            chosen = draw.integers(0, _FLOWS, 100_000)
            file.write(b"".join(records[number] for number in chosen))


def _frame(draw: np.random.Generator, *, six: bool) -> bytes:
    segment = struct.pack(">HHIIBBHHH", int(draw.integers(1024, 65536)), 443, 0, 0, 0x50, 0x10, 0, 0, 0)
    if six:
        sides = (0x20010DB8 << 96 | int(draw.integers(700)) << 64 | 1, 0x20010DB8_FFFF << 80 | int(draw.integers(5000)))
        packet = struct.pack(">IHBB", 6 << 28, len(segment), 6, 64) + b"".join(s.to_bytes(16, "big") for s in sides)
        return bytes(12) + b"\x86\xdd" + packet + segment
    packet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0) + draw.bytes(8)
    return bytes(12) + b"\x08\x00" + packet + segment

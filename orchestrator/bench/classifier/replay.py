"""Replay cached captures through a list of 10,000 rules on two cores.

Half of the rules and one packet in three are of IPv6, and packets are drawn from the rules. One capture has 20,000
flows; in the other most packets are a flow of their own, so that nothing is saved by deciding a flow once. Before
anything is timed, the replay's answer is compared with the verdict of each frame times how often it was written, line
by line of the list.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.bench.classifier.classifierlists import drawn, generate_list
from orchestrator.bench.progress import Progress
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.classify.captures import open_capture
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.packets import Packets, packet_of
from orchestrator.classify.replay import Replay, replay
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.errors import Drifted
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, WITH_PORTS
from orchestrator.policy.rulelist import rule_rows

RULES = 10_000
CORES = 2
_FLOWS = 20_000
_RUN = 100_000
"""Packets that are written at once."""
_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_MAC = 0x020000000001
_PORTS_AT = {Family.IPV4: 16 + 14 + 20, Family.IPV6: 16 + 14 + 40}
"""Where the ports stand in a record of pcap."""


@dataclass(frozen=True, slots=True)
class Written:
    """A capture, and what a list decides about it."""

    path: Path
    packets: int
    by_line: tuple[int, ...]
    """Packets that each of `Deciding.deciders` decides."""


def measure(results: Results, *, quick: bool, progress: Progress) -> None:
    """Measure millions of packets a second of captures, one packet in three of IPv6."""
    progress("replay of captures through 10,000 rules")
    packets, rounds = (300_000, 3) if quick else (1_000_000, 15)
    acl = mixed_list(RULES)
    deciding = Deciding(acl)
    flows = sample_flows(acl, _FLOWS)
    cores = min(CORES, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        captures = {
            "replay_mpps": write_flows(Path(folder) / "flows.pcap", deciding, flows, packets),
            "replay_each_a_flow_mpps": write_each_a_flow(Path(folder) / "each.pcap", deciding, flows, packets),
        }
        for each in captures.values():
            check(deciding, each, cores)
        spent: dict[str, list[float]] = {name: [] for name in captures}
        for _ in range(rounds):
            for name, each in captures.items():
                spent[name].append(_time_replay(deciding, each, cores))
    for name, seconds in spent.items():
        target = Target(5, at_most=False) if name == "replay_mpps" else None
        results.figures[name] = Figure.of([packets / each / 1e6 for each in seconds], "Mpps", target)
    results.notes.append(
        f"replay: {packets:,} packets a capture, one in three of IPv6, {_FLOWS:,} flows or nearly as many as packets, "
        f"{len(acl.rules):,} rules, {cores} cores, page cache; "
        f"every line decides as many as were written, on 1 and {cores} threads"
    )


def mixed_list(rules: int) -> Acl:
    """A list of which each second rule is of IPv6."""
    pairs = zip(generate_list("acl", rules // 2).rules, _in_ipv6(rules // 2), strict=False)
    return Acl(tuple(rule for pair in pairs for rule in pair))


def sample_flows(acl: Acl, flows: int) -> Packets:
    """Draw the first packets of flows from a list's rules, one in three of IPv6.

    Only flows with ports are drawn, for other protocols have few flows.
    """
    rows = rule_rows(acl, Direction.INGRESS)
    parts = []
    for family, share in ((Family.IPV4, flows - flows // 3), (Family.IPV6, flows // 3)):
        found = drawn([row.box for row in rows[family]], 2 * share)
        parts.append(found[np.isin(found["protocol"], [*WITH_PORTS]) & (found["later"] == 0)][:share])
    return np.random.default_rng(1).permutation(np.concatenate(parts))


def write_flows(path: Path, deciding: Deciding, flows: Packets, packets: int) -> Written:
    """Write a capture whose packets are drawn evenly from some flows."""
    draw = np.random.default_rng(1)
    written = _records(flows)
    counts = np.zeros(len(flows), np.int64)
    with path.open("wb") as file:
        file.write(_HEADER)
        for chosen in (draw.integers(0, len(flows), size) for size in _split_runs(packets)):
            counts += np.bincount(chosen, minlength=len(flows))
            file.write(b"".join(written[number] for number in chosen.tolist()))
    return Written(path, packets, _by_line(deciding, flows, counts))


def write_each_a_flow(path: Path, deciding: Deciding, flows: Packets, packets: int) -> Written:
    """Write a capture in which most packets are a flow of their own.

    Three in four ports of the flows are replaced, so that the default decides many packets.
    """
    draw = np.random.default_rng(2)
    sums = np.zeros(len(deciding.deciders), np.int64)
    records = _records(flows)
    ports_at = [_PORTS_AT[Family(family)] for family in flows["family"].tolist()]
    with path.open("wb") as file:
        file.write(_HEADER)
        for size in _split_runs(packets):
            chosen = draw.integers(0, len(flows), size)
            some = flows[chosen]
            for name in ("source_port", "destination_port"):
                some[name] = np.where(draw.integers(0, 4, size) == 0, some[name], draw.integers(0, 1 << 16, size))
            ports = zip(chosen.tolist(), some["source_port"].tolist(), some["destination_port"].tolist(), strict=True)
            file.write(b"".join(_with_ports(records[flow], ports_at[flow], *pair) for flow, *pair in ports))
            sums += _by_line(deciding, some, np.ones(size, np.int64))
    return Written(path, packets, tuple(sums.tolist()))


def check(deciding: Deciding, written: Written, cores: int) -> None:
    """Check the packets of every line of the list, on one thread and on several.

    Raises Drifted.
    """
    for threads in (1, cores):
        found = _replay_capture(deciding, written, threads)
        if found.all.packets != written.packets or tuple(found.of_list.packets.tolist()) != written.by_line:
            raise Drifted(f"a replay on {threads} threads counts other packets than were written")


def _time_replay(deciding: Deciding, written: Written, cores: int) -> float:
    began = time.perf_counter()
    _replay_capture(deciding, written, cores)
    return time.perf_counter() - began


def _replay_capture(deciding: Deciding, written: Written, threads: int) -> Replay:
    with open_capture(str(written.path)) as capture:
        return replay([capture], deciding, threads=threads)


def _by_line(deciding: Deciding, packets: Packets, counts: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """Return how many packets each line decides, if each packet comes so often."""
    sums = np.zeros(len(deciding.deciders), np.int64)
    np.add.at(sums, deciding.verdicts(packets).decider, counts)
    return tuple(sums.tolist())


def _split_runs(packets: int) -> Iterator[int]:
    for begin in range(0, packets, _RUN):
        yield min(_RUN, packets - begin)


def _records(packets: Packets) -> Sequence[bytes]:
    """A record of pcap for each packet."""
    made = (frames.frame(packet_of(each), src_mac=_MAC, dst_mac=_MAC) for each in packets)
    return [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in made]


def _with_ports(record: bytes, place: int, source: int, destination: int) -> bytes:
    """Return a record with other ports, and without correcting the checksum.

    Nobody reads the checksum of the segment.
    """
    return record[:place] + struct.pack(">HH", source, destination) + record[place + 4 :]


def _in_ipv6(rules: int) -> list[Rule]:
    """Rules for hosts of one network on one side, and for a port."""
    return [
        Rule(
            RuleId(f"six{number}"),
            Action.PERMIT if number % 2 else Action.DENY,
            protocol=TCP,
            source=Addresses((Prefix(Family.IPV6, 0x20010DB8 << 96 | number % 700 << 64, 64),)),
            destination=Addresses((Prefix(Family.IPV6, 0x20010DB8_FFFF << 80 | number, 128),)),
            destination_ports=(PortRange(number % 1000, number % 1000),),
        )
        for number in range(rules)
    ]

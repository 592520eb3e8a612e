"""Models over ClassBench's sets and recorded captures: the row that C names for all packets, the oracle for some."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from models_world import SETUPS, oracle_row, pocl, records
from public_data import DATA

from orchestrator.classify.captures import open_capture
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup
from orchestrator.classify.devices.models import Model
from orchestrator.classify.frames import read_frames
from orchestrator.classify.packets import Packets, Unread, packet_of
from orchestrator.classify.search import Search
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import WITH_PORTS
from orchestrator.policy.rulelist import Row, rule_rows

FOLDERS = DATA / "classbench", DATA / "pcap"
SETS = ("acl1_1k", "acl2_1k", "acl3_1k", "fw1_1k", "fw2_1k", "fw3_1k", "ipc1_1k")
MILLION = 1_000_000

_REASON = "real sets and captures are not here"
pytestmark = pytest.mark.skipif(not all(each.is_dir() for each in FOLDERS), reason=_REASON)


@cache
def classbench(name: str) -> tuple[Acl, tuple[Row, ...]]:
    """A set, and its rows of IPv4."""
    import gzip  # noqa: PLC0415

    plain, packed = FOLDERS[0] / f"{name}.rules", FOLDERS[0] / f"{name}.rules.gz"
    text = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    acl = read(text, "classbench", name=name, options=Options(classbench_action=None)).acl
    return acl, rule_rows(acl, Direction.INGRESS)[Family.IPV4]


@cache
def aimed(name: str, count: int) -> tuple[Packets, np.ndarray, tuple[Packet, ...]]:
    """Packets at the corners of a set's rules, the row of each in C, and some of them."""
    acl, rows = classbench(name)
    some = [packet for packet in corner_packets(acl.rules[:: len(acl.rules) // 40], {}) if packet.family is Family.IPV4]
    found = np.concatenate([records(some), records([row.box.witness() for row in rows])])
    draw = np.random.default_rng(1)
    packets = found[draw.integers(0, len(found), count)]
    chosen = draw.integers(0, len(found), count)
    for field in ("source", "source_port"):  # of another rule: so many packets meet a later row, or the default
        packets[field] = np.where(
            (draw.integers(0, 4, count) == 0).reshape(-1, *[1] * (packets[field].ndim - 1)),
            found[chosen][field], packets[field],
        )  # fmt: skip
    packets["source_port"][~np.isin(packets["protocol"], list(WITH_PORTS)) | (packets["later"] != 0)] = 0
    return packets, Search(Family.IPV4, [row.box for row in rows]).first(packets), tuple(some[:60])


def agree(name: str, setup: Setup, count: int) -> None:
    acl, rows = classbench(name)
    packets, wanted, some = aimed(name, count)
    search = DeviceSearch(pocl(), Family.IPV4, [row.box for row in rows], setup)
    assert np.array_equal(search.first(packets), wanted)
    assert search.first(records(some)).tolist() == [oracle_row(rows, packet, acl) for packet in some]
    assert len(np.unique(wanted)) > len(rows) // 4


@pytest.mark.parametrize("name", SETS)
def test_models_agree_over_classbench(name: str) -> None:
    for setup in SETUPS:
        if setup.model is not Model.FUNCTION:
            agree(name, setup, 1_000)


def captured() -> Packets:
    """All packets of the captures that were read."""
    found = []
    for path in sorted(FOLDERS[1].rglob("*.pcap*")):
        with open_capture(str(path)) as capture:
            found += [read_frames(frames) for frames in capture.pieces()]
    packets = np.concatenate(found)
    return packets[packets["unread"] == Unread.READ.value]


def list_about(packets: Sequence[Packet]) -> Acl:
    """A list that names networks, protocols and ports of packets, in both directions."""
    rules = []
    for place, packet in enumerate(packets):
        length = (packet.family.bits, packet.family.bits * 3 // 4, packet.family.bits // 2)[place % 3]
        shift = packet.family.bits - length
        source = Prefix(packet.family, packet.source >> shift << shift, length)
        with_ports = packet.protocol in WITH_PORTS and not packet.later_fragment
        ports = (PortRange(packet.destination_port // 2, packet.destination_port),) if with_ports else EVERY_PORT
        rules.append(
            Rule(
                RuleId(f"r{place}"), (Action.PERMIT, Action.DENY)[place % 2], tuple(Direction)[place // 7 % 2],
                packet.protocol if packet.protocol != 44 else None, Addresses((source,)), destination_ports=ports,
            )
        )  # fmt: skip
    return Acl(tuple(rules))


@pytest.mark.parametrize("count", [3_000, pytest.param(MILLION, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_models_agree_over_captures(count: int) -> None:
    packets = captured()
    distinct = [packet_of(each) for each in np.unique(packets)[:: len(np.unique(packets)) // 150]]
    acl = list_about(distinct)
    for direction in Direction:
        for family, rows in rule_rows(acl, direction).items():
            boxes = [row.box for row in rows]
            mine = packets[packets["family"] == family.value]
            mine = np.resize(mine[:: max(1, len(mine) // count)], count)
            wanted = Search(family, boxes).first(mine)
            some = [packet for packet in distinct if packet.family is family]
            for setup in SETUPS:
                search = DeviceSearch(pocl(), family, boxes, setup)
                part = slice(0, count // (100 if setup.model is Model.FUNCTION else 1))
                assert np.array_equal(search.first(mine[part]), wanted[part]), setup.model
                assert search.first(records(some)).tolist() == [oracle_row(rows, each, acl) for each in some]

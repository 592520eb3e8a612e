"""All ways to find a row agree on a million packets of every ClassBench set, and on recorded captures.

Tests of a set are a group of pytest-xdist (`-n 2 --dist loadgroup`), so that its packets are drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from classify.test_search_law import SETS, set_of
from models_world import oracle_row, pocl

from orchestrator.bench.classifier.classifierlists import FOLDER, drawn
from orchestrator.classify.captures import open_capture
from orchestrator.classify.columns import I32
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup
from orchestrator.classify.devices.models import Model
from orchestrator.classify.frames import read_frames
from orchestrator.classify.overlay import Overlaid, Placed
from orchestrator.classify.packets import Packets, Unread, packet_of
from orchestrator.classify.search import IN_ORDER, WAYS, Search
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Direction
from orchestrator.policy.rulelist import Row, rule_rows

CAPTURES = tuple(sorted(FOLDER.with_name("pcap").rglob("*.pcap*")))
PACKETS = 1_000_000
SLOW = {Model.FUNCTION: 2_000, Model.FUNCTION_BATCHED: 100_000}
"""A launch a packet, or an answer an item: so many packets are put to these models."""
ASKED = 300
"""So many packets of a set are put to the oracle's own words, which go through all rules in Python."""

EVERY_SET = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SETS or ["none"]]
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not SETS, reason="ACLFLOW_DATA names no folder with classbench/"),
]


@cache
def sample(name: str) -> tuple[Acl, Sequence[Row], Packets, I32]:
    """A set, its rows, a million packets, and the first row of each as the list gone through in order finds it."""
    acl = set_of(name).acl
    rows = rule_rows(acl, Direction.INGRESS)[Family.IPV4]
    packets = drawn([row.box for row in rows], PACKETS, 2)
    return acl, rows, packets, Search(Family.IPV4, [row.box for row in rows]).first(packets, IN_ORDER)


def assert_same(found: I32, wanted: I32, packets: Packets) -> None:
    wrong = np.flatnonzero(found != wanted)
    assert not len(wrong), (len(wrong), packet_of(packets[wrong[0]]), found[wrong[0]], wanted[wrong[0]])


@EVERY_SET
def test_the_list_in_order_is_the_oracle(name: str) -> None:
    acl, rows, packets, wanted = sample(name)
    for place in range(0, PACKETS, PACKETS // ASKED):
        assert oracle_row(rows, packet_of(packets[place]), acl) == wanted[place]


@EVERY_SET
def test_the_processors_ways(name: str) -> None:
    _, rows, packets, wanted = sample(name)
    search = Search(Family.IPV4, [row.box for row in rows])
    for way in WAYS:
        assert_same(search.first(packets, way), wanted, packets)


@EVERY_SET
def test_rows_that_changed_and_changed_back(name: str) -> None:
    """Some rows are taken out and put back, others begin somewhere else and are put in their place."""
    _, rows, packets, wanted = sample(name)
    placed = [Placed(place, place, row.box) for place, row in enumerate(rows)]
    now = Overlaid.of(Family.IPV4, [*placed[1::2], *(Placed(0, row.number, row.box) for row in placed[::2])])
    for row in placed[::2]:
        now = now.exchange_rows((), (row,))
    moved = placed[:: max(1, len(placed) // 50)]
    now = now.exchange_rows([row.number for row in moved], ()).exchange_rows((), moved)
    assert now.changed_rows
    assert_same(now.first(packets), wanted, packets)


@pytest.mark.parametrize("model", Model, ids=lambda model: model.value)
@EVERY_SET
def test_every_model_on_a_device(name: str, model: Model) -> None:
    _, rows, packets, wanted = sample(name)
    count = SLOW.get(model, PACKETS)
    room = 1_024 if model is Model.FUNCTION_BATCHED else 1 << 16
    search = DeviceSearch(pocl(), Family.IPV4, [row.box for row in rows], Setup(model, room=room))
    assert_same(search.first(packets[:count]), wanted[:count], packets)


def recorded(path: Path) -> Iterator[Packets]:
    """The packets of a capture that were read, piece by piece."""
    with open_capture(str(path)) as capture:
        for frames in capture.pieces():
            packets = read_frames(frames)
            yield packets[packets["unread"] == Unread.READ.value]


@pytest.mark.skipif(not CAPTURES, reason="the recorded captures are not here")
@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k", "ipc1_1k"])
def test_recorded_captures(name: str) -> None:
    """Packets of every capture, of both IP versions: the processor's ways, the models, and the oracle for some."""
    acl = set_of(name).acl
    models = [model for model in Model if model not in SLOW]
    asked = 0
    for family, rows in rule_rows(acl, Direction.INGRESS).items():
        boxes = [row.box for row in rows]
        search = Search(family, boxes)
        devices = [DeviceSearch(pocl(), family, boxes, Setup(model)) for model in models]
        for path in CAPTURES:
            for packets in recorded(path):
                mine = packets[packets["family"] == family.value]
                wanted = search.first(mine, IN_ORDER)
                for way in WAYS:
                    assert_same(search.first(mine, way), wanted, mine)
                for device in devices:
                    assert_same(device.first(mine), wanted, mine)
                for place in range(0, len(mine), max(1, len(mine) // 3)):
                    assert oracle_row(rows, packet_of(mine[place]), acl) == wanted[place]
                    asked += 1
    assert asked

"""Searches of whole lists agree with the list gone through row by row; ClassBench's sets, and lists like them."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from orchestrator.bench.classifier.lists import FOLDER, KINDS, Listed, drawn, generate_list
from orchestrator.classify.packets import packet_of
from orchestrator.classify.search import IN_ORDER, WAYS, Search
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options

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

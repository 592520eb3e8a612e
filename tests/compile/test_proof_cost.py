"""What the proof of a list costs: n log n also where rows differ in nothing but their ports."""

from __future__ import annotations

from itertools import product
from math import log2

import numpy as np

from orchestrator.compile.equivalence.order import index_of
from orchestrator.compile.equivalence.rowdecoder import ITEM, Items


def grid(ports: int, *, addresses: int = 1) -> Items:
    """One rule's items: every other source port by every other destination port, for some sources; one priority."""
    rows = list(product(range(addresses), range(ports), range(ports)))
    items = np.zeros(len(rows), ITEM)
    for item, (address, source, destination) in zip(items, rows, strict=True):
        item["low"][0][1] = item["high"][0][1] = address << 40
        item["port_low"] = item["port_high"] = 2 * source + 1, 2 * destination + 1
    items["priority"] = 300
    return items


def compared_for_each(items: Items) -> float:
    """How many boxes the search of the proof looks at for each item, over the logarithm of how many items there are."""
    index = index_of(items)
    assert index.conflict() is None
    return index.compared / len(items) / log2(len(items))


def test_items_that_differ_only_in_ports_are_told_apart_by_ports() -> None:
    assert compared_for_each(grid(16)) < 16
    assert compared_for_each(grid(64)) < 16
    assert compared_for_each(grid(24, addresses=8)) < 16


def test_items_of_one_rule_that_overlap_are_found_whatever_their_priorities() -> None:
    items = grid(8)
    for first, second in ((300, 301), (301, 300), (300, 300)):
        wrong = items.copy()
        wrong["priority"][5], wrong["priority"][40] = first, second
        assert index_of(wrong).conflict() is None
        wrong["port_low"][40] = wrong["port_high"][40] = wrong["port_low"][5]
        found = index_of(wrong).conflict()
        assert found is not None
        assert set(found) == {5, 40}

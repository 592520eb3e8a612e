"""An overlay answers as the same rows built anew, after any changes; and mistakes in it are noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models_world import pocl
from strategies import acls, corner_packets_of

from orchestrator.bench.classifier.classifierlists import KINDS, Listed, drawn, generate_list
from orchestrator.classify import overlay
from orchestrator.classify.devices.guarded import OnDevice
from orchestrator.classify.overlay import MOST_CHANGED, NONE, MakeSearch, Overlaid, Placed
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.classify.search import Search
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Direction
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import Box


@dataclass
class Story:
    """Rows under changes: as an overlay, and as what they are."""

    now: Overlaid
    rows: dict[int, Placed] = field(default_factory=dict)

    @classmethod
    def of(cls, family: Family, rows: Sequence[Placed], searching: MakeSearch = Search) -> Story:
        return cls(Overlaid.of(family, rows, searching), {row.number: row for row in rows})

    def change(self, removed: Sequence[int], placed: Sequence[Placed]) -> None:
        self.now = self.now.exchange_rows(removed, placed)
        for number in removed:
            self.rows.pop(number, None)
        self.rows.update({row.number: row for row in placed})

    def wanted(self, family: Family, packets: Packets) -> list[int]:
        """Of the same rows built anew."""
        rows = sorted(self.rows.values(), key=lambda row: (row.order, row.number))
        found = Search(family, [row.box for row in rows]).first(packets)
        return [rows[place].number if place >= 0 else NONE for place in found.tolist()]


def change_at_random(story: Story, boxes: Sequence[Box], chance: Random) -> None:
    """Take some rows away, change some where they are, and put some in, anywhere in the order."""
    known = list(story.rows)
    gone = chance.sample(known, min(len(known), chance.randint(0, 2)))
    changed = [
        Placed(story.rows[number].order, number, chance.choice(boxes))
        for number in chance.sample(known, min(len(known), 1))
        if number not in gone
    ]
    top = max(known, default=0) + 1
    orders = {row.order for row in story.rows.values()}
    new = []
    for number in range(top, top + chance.randint(0, 2)):
        order = chance.choice([each for each in range(4 * top + 8) if each not in orders])
        orders.add(order)
        new.append(Placed(order, number, chance.choice(boxes)))
    story.change(gone, [*changed, *new])


def boxes_of(acl: Acl, family: Family) -> list[Box]:
    return [row.box for direction in Direction for row in rule_rows(acl, direction)[family]]


def told(acl: Acl, seed: int, family: Family) -> None:
    """A story of changes over a list, and rebuilding in the middle of it."""
    boxes, chance = boxes_of(acl, family), Random(seed)
    packets = np.array([record(packet) for packet in corner_packets_of(acl) if packet.family is family], PACKET)
    story = Story.of(family, [Placed(4 * place, place, box) for place, box in enumerate(boxes[::2])])
    for _ in range(3):
        change_at_random(story, boxes, chance)
        assert story.now.first(packets).tolist() == story.wanted(family, packets)
        if chance.random() < 0.7:
            start = story.now
            behind = start.rebuilt()
            change_at_random(story, boxes, chance)
            story.now = story.now.carried_over(start, behind)
        assert story.now.first(packets).tolist() == story.wanted(family, packets)


def told_often(acl: Acl) -> None:
    for seed in range(20):
        told(acl, seed, Family.IPV4)


@settings(deadline=None)
@given(acls(), st.integers(0, 2**32), st.sampled_from(Family))
def test_an_overlay_answers_as_rows_built_anew(acl: Acl, seed: int, family: Family) -> None:
    told(acl, seed, family)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_a_long_list(kind: str) -> None:
    boxes = Listed(generate_list(kind, 1_200), "generated").boxes()
    story = Story.of(Family.IPV4, [Placed(4 * place, place, box) for place, box in enumerate(boxes)])
    packets, chance = drawn(boxes, 3_000, 5), Random(3)
    for _ in range(40):
        change_at_random(story, boxes, chance)
    assert story.now.changed_rows
    assert story.now.first(packets).tolist() == story.wanted(Family.IPV4, packets)


def test_more_changes_than_an_overlay_holds_are_built() -> None:
    boxes = Listed(generate_list("acl", 600), "generated").boxes()
    story = Story.of(Family.IPV4, [Placed(place, place, box) for place, box in enumerate(boxes)])
    packets = drawn(boxes, 500, 5)
    story.change(list(range(MOST_CHANGED + 1)), [])
    assert story.now.changed_rows == 0
    assert story.now.first(packets).tolist() == story.wanted(Family.IPV4, packets)


def test_an_overlay_over_rows_on_a_device() -> None:
    boxes = Listed(generate_list("fw", 300), "generated").boxes()
    rows = [Placed(4 * place, place, box) for place, box in enumerate(boxes)]
    story = Story.of(Family.IPV4, rows, OnDevice(pocl()).search)
    packets, chance = drawn(boxes, 2_000, 5), Random(8)
    for _ in range(5):
        change_at_random(story, boxes, chance)
    assert story.now.first(packets).tolist() == story.wanted(Family.IPV4, packets)


def test_no_rows_and_no_packets() -> None:
    nothing = Overlaid.of(Family.IPV6, ())
    assert nothing.first(np.zeros(0, PACKET)).tolist() == []
    assert nothing.first(np.zeros(2, PACKET)).tolist() == [NONE, NONE]
    one = nothing.exchange_rows((), [Placed(3, 7, Box(Family.IPV6))])
    assert one.exchange_rows([7], ()).first(np.zeros(1, PACKET)).tolist() == [NONE]
    assert nothing.first(np.zeros(1, PACKET)).tolist() == [NONE]  # a change makes another value


def _always_over(self: Overlaid, packets: Packets) -> object:
    """A planted bug: an overlay's row decides wherever there is one."""
    found = self._built.search.first(packets)
    self._built.in_order.pass_over(packets, found, self._removed)
    over = self._overlay.first(packets) if self._overlay else np.full(len(packets), NONE, np.int32)
    return np.where(over >= 0, self._names.numbers[over], self._built.names.numbers[found])


def _never_removed(self: Overlaid, packets: Packets) -> object:
    """A planted bug: rows that are gone go on deciding."""
    self._removed[:] = False
    return _first(self, packets)


def _no_next(self: Overlaid, packets: Packets) -> object:
    """A planted bug: behind a removed row nothing is looked for."""
    found = self._built.search.first(packets)
    found[(found >= 0) & self._removed[found]] = NONE
    over = self._overlay.first(packets) if self._overlay else np.full(len(packets), NONE, np.int32)
    is_over = self._names.keys[over] < self._built.names.keys[found]
    return np.where(is_over, self._names.numbers[over], self._built.names.numbers[found])


def _forgetful(self: Overlaid, since: Overlaid, rebuilt: Overlaid) -> Overlaid:
    """A planted bug: what changed while rows were built is lost."""
    return rebuilt


_first = Overlaid.first


@pytest.mark.parametrize(
    ("name", "bug"),
    [("first", _always_over), ("first", _never_removed), ("first", _no_next), ("carried_over", _forgetful)],
    ids=["wrong order of the overlay", "removed rows decide", "nothing behind a removed row", "changes lost"],
)
def test_planted_bugs_are_noticed(monkeypatch: pytest.MonkeyPatch, name: str, bug: Callable[..., object]) -> None:
    monkeypatch.setattr(overlay.Overlaid, name, bug)
    with pytest.raises(AssertionError):
        told_often(generate_list("fw", 60))

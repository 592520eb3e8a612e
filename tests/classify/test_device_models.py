"""Each model names the row that the oracle names, and a model with a planted bug does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from models_world import SETUPS, disagreements, many, nested, pocl, records, tricky
from strategies import acls

from orchestrator.classify.devices import devicesearch as searching
from orchestrator.classify.devices.device import Device
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup, source
from orchestrator.classify.devices.models import Model
from orchestrator.classify.devices.opencl import OpenClLane
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, GroupName, Packet, Rule, RuleId
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rulelist import rule_rows


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
@settings(deadline=None, max_examples=8)
@given(acl=acls())
def test_a_model_names_the_row_of_the_oracle(setup: Setup, acl: Acl) -> None:
    assert disagreements(pocl(), acl, setup) == []


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_a_model_names_the_row_of_the_oracle_in_lists_with_many_overlaps(setup: Setup) -> None:
    assert disagreements(pocl(), tricky(), setup) == []
    assert disagreements(pocl(), nested(), setup) == []
    assert disagreements(pocl(), many(150), setup, [Family.IPV4]) == []


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_more_kinds_of_rows_than_are_kept_in_a_word(setup: Setup) -> None:
    protocols = [Rule(RuleId(f"r{each}"), Action.PERMIT, Direction.INGRESS, each) for each in range(100, 180)]
    packets = records([Packet(Family.IPV4, 1, 2, each) for each in range(90, 190)])
    rows = rule_rows(Acl(tuple(protocols)), Direction.INGRESS)[Family.IPV4]
    found = DeviceSearch(pocl(), Family.IPV4, [row.box for row in rows], setup).first(packets)
    assert found.tolist() == [each - 100 if 100 <= each < 180 else 80 for each in range(90, 190)]


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_groups_with_many_prefixes_are_asked_exactly(setup: Setup) -> None:
    group = AddressGroup(GroupName("g"), tuple(Prefix(Family.IPV6, 4 * each << 64, 66) for each in range(300)))
    rule = Rule(RuleId("r"), Action.PERMIT, Direction.INGRESS, None, Addresses((), ("g",)))
    rows = rule_rows(Acl((rule,), {"g": group}), Direction.INGRESS)[Family.IPV6]
    ends = [each << 64 | part << 62 for each in (0, 1, 3, 4, 596, 600, 1196, 1197, 1200) for part in (0, 1, 3)]
    packets = records([Packet(Family.IPV6, address, 7, TCP) for address in ends])
    found = DeviceSearch(pocl(), Family.IPV6, [row.box for row in rows], setup).first(packets)
    inside = [any(address >> 62 == 16 * each for each in range(300)) for address in ends]
    assert [row == 0 for row in found.tolist()] == inside
    assert set(inside) == {False, True}


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.value)
def test_nothing_is_found_where_no_row_holds_a_packet(setup: Setup) -> None:
    rows = rule_rows(many(3), Direction.INGRESS)[Family.IPV4][:-1]
    packets = [Packet(Family.IPV4, 10 << 24, 1, TCP, 9, port) for port in (0, 6, 4, 60_000)]
    search = DeviceSearch(pocl(), Family.IPV4, [row.box for row in rows], setup)
    assert search.first(records(packets)).tolist() == [0, 2, 1, -1]
    assert DeviceSearch(pocl(), Family.IPV4, [], setup).first(records(packets)).tolist() == [-1] * 4


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug: what stands in the source, what is put there instead, and in which model it shows."""

    name: str
    old: str
    new: str
    model: Model
    family: Family = Family.IPV4
    times: int = 1

    def __str__(self) -> str:
        return f"{self.name} in {self.model.value}"


_BREAK = "first = row;\n            break;"
PLANTS = (
    Plant("any match", _BREAK, "first = row;", Model.DATA_GLOBAL, times=2),
    Plant("the last row left out", "at < here; at++)", "at + 1 < here; at++)", Model.DATA_LOCAL),
    Plant("rows of constant memory shifted", "constant_rows, count, row,", "constant_rows, count, row ^ 1,",
          Model.DATA_CONSTANT),
    Plant("a share that begins too late", "uint row = share;", "uint row = share + 1;", Model.FUNCTION_BATCHED),
    Plant("any match", "return row;\n    return NONE;", "share = row;\n    return share;", Model.FUNCTION),
    Plant("a reduction that ends too early", "step > 0; step /= 2", "step > 1; step /= 2", Model.HYBRID),
    Plant("a reduction that keeps any", "firsts[ITEM + step] < firsts[ITEM]", "firsts[ITEM + step] != NONE",
          Model.HYBRID),
    Plant("upper half of addresses ignored", "for (int w = 0; w < WORDS; w++) {  ",
          "for (int w = WORDS / 2; w < WORDS; w++) {  ", Model.DATA_GLOBAL, Family.IPV6),
    Plant("scattered sets taken for their bounds", "if (!(kind & SCATTERED))", "if (1)", Model.DATA_GLOBAL),
    Plant("fragments ignored", "axis < AXES; axis++)\n        if", "axis + 1 < AXES; axis++)\n        if",
          Model.BIT_VECTORS),
    Plant("any match", "32 * word + BITS_BELOW(bits)", "32 * word + 31 - clz(bits)", Model.BIT_VECTORS),
    Plant("any match", "if (mask[KEY] >= best)", "if (best != NONE)", Model.TUPLE_SPACE),
    Plant("a stale batch", "found[i] = best;", "if (best > 1)\n        found[i] = best;", Model.MERGED_TUPLES),
)  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_planted_bug_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = next(setup for setup in SETUPS if setup.model is plant.model)
    text = source(plant.family)
    assert text.count(plant.old) == plant.times, "the source does not say that any more"
    assert not _seen(pocl(), plant, setup)
    monkeypatch.setattr(searching, "source", lambda family: text.replace(plant.old, plant.new))
    assert _seen(pocl(), plant, setup)


def _seen(device: Device, plant: Plant, setup: Setup) -> bool:
    return any(disagreements(device, acl, setup, [plant.family]) for acl in (tricky(), many(40), nested()))


def test_an_answer_that_is_not_fetched_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that leaves the answers of the one before it in its lane."""
    fetch, calls = OpenClLane.fetch, iter(range(1_000_000))
    monkeypatch.setattr(OpenClLane, "fetch", lambda lane, answers: next(calls) % 5 and fetch(lane, answers))
    assert disagreements(pocl(), many(150), SETUPS[0], [Family.IPV4])


def test_batches_of_all_sizes_are_answered_whole() -> None:
    rows = rule_rows(many(70), Direction.INGRESS)[Family.IPV4]
    setup = Setup(Model.BIT_VECTORS, items=16, room=48, lanes=2)
    search = DeviceSearch(pocl(), Family.IPV4, [row.box for row in rows], setup)
    packets = records([Packet(Family.IPV4, 10 << 24, 1, TCP, 9, port % 280) for port in range(300)])
    whole = search.first(packets)
    for count in (0, 1, 15, 16, 17, 47, 48, 49, 96, 97, 300):
        assert np.array_equal(search.first(packets[:count]), whole[:count])

"""Tenants on firewall servers: bounds hold, little moves, and nothing depends on the order of what is given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.placement.servers import Load, Server, Weights, place, preference

NAMES = [f"s{number}" for number in range(8)]
_EXACT = 1e-9

servers_drawn = st.lists(
    st.builds(Server, st.sampled_from(NAMES), st.sampled_from((0.5, 1.0, 1.0, 3.0))),
    min_size=1, max_size=6, unique_by=lambda server: server.name,
)  # fmt: skip
loads_drawn = st.dictionaries(
    st.integers(0, 200).map(lambda number: f"tenant-{number}"),
    st.builds(Load, st.sampled_from((0, 1, 10, 1000)), st.sampled_from((0.0, 5.0, 1e6)), st.integers(0, 4)),
    max_size=60,
)


def _alone(loads: Mapping[str, Load], key: str) -> float:
    totals = [sum(getattr(load, name) for load in loads.values()) for name in ("rules", "traffic_pps", "chunks")]
    mine = [getattr(loads[key], name) for name in ("rules", "traffic_pps", "chunks")]
    there = [(value, total) for value, total in zip(mine, totals, strict=True) if total]
    return sum(value / total for value, total in there) / max(len(there), 1)


@given(servers_drawn, loads_drawn)
def test_everybody_has_a_server_and_nobody_bears_more_than_its_bound(
    servers: list[Server], loads: dict[str, Load]
) -> None:
    found = place(servers, loads)
    assert found.server_of.keys() == loads.keys()
    weights, dearest = sum(server.weight for server in servers), max((_alone(loads, key) for key in loads), default=0.0)
    everything = sum(_alone(loads, key) for key in loads)
    for server in servers:
        borne = sum(_alone(loads, key) for key in found.keys_of(server.name))
        assert borne == pytest.approx(found.load[server.name], abs=_EXACT)
        assert borne <= everything * server.weight / weights * 1.25 + dearest + _EXACT


@given(servers_drawn, loads_drawn, st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_given_means_nothing(servers, loads, random) -> None:  # type: ignore[no-untyped-def]
    turned = list(loads.items())
    random.shuffle(turned)
    shuffled = list(servers)
    random.shuffle(shuffled)
    assert place(servers, loads) == place(shuffled, dict(turned))


@given(servers_drawn, loads_drawn)
def test_who_is_placed_stays(servers: list[Server], loads: dict[str, Load]) -> None:
    found = place(servers, loads)
    again = place(servers, loads, found.server_of)
    assert (again.server_of, again.moves) == (found.server_of, ())


@given(servers_drawn.filter(lambda found: len(found) > 1), loads_drawn, st.data())
def test_of_a_lost_server_only_its_own_tenants_move(servers, loads, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    before = place(servers, loads)
    lost = data.draw(st.sampled_from(servers))
    after = place([server for server in servers if server != lost], loads, before.server_of)
    assert {move.key for move in after.moves} == set(before.keys_of(lost.name))
    assert all(move.source == lost.name != move.target for move in after.moves)


@given(servers_drawn, loads_drawn)
def test_a_new_server_takes_only_what_others_have_too_much(servers: list[Server], loads: dict[str, Load]) -> None:
    before = place(servers, loads)
    after = place([*servers, Server("new")], loads, before.server_of)
    dearest = max((_alone(loads, key) for key in loads), default=0.0)
    for server in servers:
        gone = sum(_alone(loads, move.key) for move in after.moves if move.source == server.name)
        too_much = before.load[server.name] - after.bound[server.name]
        assert gone <= max(0.0, too_much) + dearest + _EXACT
        assert gone <= _EXACT or too_much > -_EXACT


@given(st.lists(st.sampled_from(NAMES), min_size=1, unique=True), st.sampled_from(NAMES))
def test_another_server_does_not_change_who_is_preferred_among_the_others(names: list[str], other: str) -> None:
    assert [name for name in preference("tenant", [*names, "else"]) if name != "else"] == preference("tenant", names)


def test_many_equal_tenants_are_spread_by_weight() -> None:
    loads = {f"tenant-{number}": Load(10, 1.0) for number in range(4000)}
    found = place([Server("a"), Server("b"), Server("c", 2.0)], loads)
    sizes = {name: len(found.keys_of(name)) for name in "abc"}
    assert sum(sizes.values()) == 4000
    for name, share in (("a", 1000), ("b", 1000), ("c", 2000)):
        assert 0.7 * share <= sizes[name] <= 1.25 * share + 1


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: place([], {"t": Load()}), "no firewall server"),
        (lambda: Server("a", 0), "serves nobody"),
        (lambda: Load(-1), "cannot be"),
        (lambda: Weights(0, 0, 0), "something must count"),
        (lambda: Weights(slack=0), "slack"),
    ],
)
def test_what_cannot_be_is_refused(make, word: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=word):
        make()

"""Controllers that share switches: whose share each is, and who takes over when."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.enforce.succession import (
    AFTER_OUTAGE_S,
    CONFIRM_S,
    IDLE_S,
    LOOK_AGAIN_S,
    OTHERS_FIRST_S,
    SIGN_OF_LIFE_S,
    SILENCE_S,
    Succession,
    lead_all,
    share_of,
)
from orchestrator.wire.points import Leading

HOSTS = frozenset(f"host{number}" for number in range(300))


def shares(*controllers: int) -> dict[int, frozenset[str]]:
    """The share of each, as it works it out by itself: from the others, and whether it leads already or not."""
    found = {each: frozenset(filter(share_of(each, controllers), HOSTS)) for each in controllers}
    for each in controllers:
        assert found[each] == frozenset(filter(share_of(each, {*controllers} - {each}), HOSTS))
    return found


def test_each_host_is_of_one_share_and_shares_are_about_equal() -> None:
    found = shares(3, 4, 9)
    assert set().union(*found.values()) == HOSTS
    assert sum(map(len, found.values())) == len(HOSTS)
    assert all(70 <= len(each) <= 130 for each in found.values())
    assert all(map(share_of(3, ()), HOSTS))
    assert all(map(lead_all, HOSTS))


@pytest.mark.parametrize("dead", [3, 4, 9])
def test_where_one_dies_only_its_hosts_move_and_to_all_others(dead: int) -> None:
    before = shares(3, 4, 9)
    left = [each for each in before if each != dead]
    after = shares(*left)
    gained = [after[each] - before[each] for each in left]
    assert all(before[each] <= after[each] for each in left)
    assert frozenset().union(*gained) == before[dead]
    assert all(len(each) >= 30 for each in gained)


def test_a_host_is_taken_when_it_was_seen_twice_and_by_whose_share_it_is_first() -> None:
    hosts, leaders = {f"host{number}" for number in range(20)}, (3, 9)
    seen = Leading(leaders, (*sorted(hosts), "elsewhere"))
    mine = frozenset(filter(share_of(3, leaders), hosts))
    assert mine
    assert mine < hosts
    one = Succession(3)
    assert one.choose_hosts(seen, hosts, True, 100.0) == frozenset()
    assert one.choose_hosts(seen, hosts, True, 100.0 + CONFIRM_S) == mine
    assert one.choose_hosts(seen, hosts - mine, True, 100.0 + CONFIRM_S + OTHERS_FIRST_S) == hosts - mine


def test_a_host_that_is_led_again_meanwhile_is_left_alone() -> None:
    one = Succession(3)
    unled, led = Leading((9,), ("host1",)), Leading((9,), ())
    assert one.choose_hosts(unled, {"host1"}, True, 0.0) == frozenset()
    assert one.choose_hosts(led, {"host1"}, True, 1.0) == frozenset()
    assert one.choose_hosts(unled, {"host1"}, True, 2.0) == frozenset(), "seen only once since"


def test_nothing_is_taken_for_a_while_after_the_service_was_away() -> None:
    """It heard nobody meanwhile, so all look silent; each has said that it lives before anybody is believed dead."""
    one, silent = Succession(3), Leading((), ("host1",))
    assert one.choose_hosts(silent, {"host1"}, True, 0.0) == frozenset()
    one.lose_sight()
    for moment in (1.0, 1.0 + CONFIRM_S, 1.0 + AFTER_OUTAGE_S - 0.1, 1.0 + AFTER_OUTAGE_S):
        assert one.choose_hosts(silent, {"host1"}, False, moment) == frozenset()
    assert one.choose_hosts(silent, {"host1"}, True, 10.0) == frozenset(), "seen for the first time since"
    assert one.choose_hosts(silent, {"host1"}, True, 10.0 + CONFIRM_S) == {"host1"}


def test_whoever_leads_none_takes_its_share_after_a_while() -> None:
    one, all_led = Succession(3), Leading((9,), ())
    mine = frozenset(filter(share_of(3, (9,)), HOSTS))
    assert one.choose_hosts(all_led, HOSTS, False, 0.0) == frozenset()
    assert one.choose_hosts(all_led, HOSTS, False, IDLE_S - 0.1) == frozenset()
    assert one.choose_hosts(all_led, HOSTS, False, IDLE_S) == mine
    assert one.choose_hosts(all_led, HOSTS - mine, True, IDLE_S + 1) == frozenset()
    assert one.choose_hosts(all_led, HOSTS, False, IDLE_S + 2) == frozenset(), "it lost them anew"


def test_a_dead_controllers_hosts_are_chosen_within_four_seconds_and_a_living_ones_never() -> None:
    """However looks, signs of life and the service's notes of these fall: it notes one a second at the most."""
    steps = 20
    for phase, died in itertools.product(range(int(LOOK_AGAIN_S * steps)), range(3 * steps, 4 * steps)):
        noted, said, one = 0.0, 0.0, Succession(3)
        for tick in range(9 * steps):
            now = tick / steps
            if tick < died and now - said >= SIGN_OF_LIFE_S:
                said = now
                noted = now if now - noted >= 1.0 else noted
            if tick % int(LOOK_AGAIN_S * steps) == phase:
                is_silent = now - noted > SILENCE_S
                seen = Leading(() if is_silent else (9,), ("host1",) if is_silent else ())
                if one.choose_hosts(seen, {"host1"}, True, now):
                    assert died <= tick <= died + 4 * steps
                    break
        else:
            pytest.fail("nobody took it")

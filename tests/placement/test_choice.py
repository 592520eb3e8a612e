"""Choosing by packets and by savings: the budget, what cools, what is about as good, what the operator wants."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.placement.choice import (
    Algorithm,
    Choice,
    Look,
    Prospect,
    Settings,
    Subject,
    Wish,
    choose,
    expected_upcalls,
)
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import RuleId, TenantId

FINE = Prospect(now=Look(1e6, 20), lifted=Look())
"""Behind shapes that look at sources, and behind none when lifted."""
COARSE = Prospect(now=Look(1.0, 20), lifted=Look())
"""Nobody looks at the other side: a lift saves no upcall."""


def name(rule: str) -> LiftedRule:
    return LiftedRule(TenantId("t"), RuleId(rule))


def subject(rule: str, packets: int, *, lifted: bool = False, wish: Wish | None = None, idle_s: float = 1.0) -> Subject:
    return Subject(name(rule), packets, idle_s, lifted, wish)


def up(choice: Choice) -> list[str]:
    return [verdict.rule.rule for verdict in choice.lift]


def down(choice: Choice) -> list[str]:
    return [verdict.rule.rule for verdict in choice.lower]


def test_savings_take_the_best_set_under_the_budget_in_one_round() -> None:
    subjects = [subject("a", 90_000), subject("b", 60_000), subject("c", 30_000), subject("d", 1999)]
    found = choose(subjects, Settings(most_lifted=2), 300.0, lambda _: FINE)
    assert up(found) == ["a", "b"]
    assert all(verdict.saves_us_per_s and "saves" in verdict.because for verdict in found.lift)


def test_savings_do_not_lift_what_gains_nothing() -> None:
    found = choose([subject("a", 10_000_000)], Settings(), 300.0, lambda _: COARSE)
    assert (found.lift, found.lower) == ((), ())


def test_savings_go_by_what_is_saved_not_by_packets() -> None:
    prospects = {name("busy"): COARSE, name("fine"): FINE}
    subjects = [subject("busy", 1_000_000), subject("fine", 50_000)]
    assert up(choose(subjects, Settings(), 300.0, prospects.__getitem__)) == ["fine"]
    assert up(choose(subjects, Settings(Algorithm.PAPER), 300.0, prospects.__getitem__)) == ["busy"]


def test_a_rule_that_is_a_little_better_does_not_take_anothers_place() -> None:
    settings = Settings(most_lifted=1, hysteresis=0.25)
    little = [subject("a", 100_000, lifted=True), subject("b", 120_000)]
    found = choose(little, settings, 300.0, lambda _: FINE)
    assert (up(found), down(found), [each.rule.rule for each in found.stays]) == ([], [], ["a"])
    much = [subject("a", 100_000, lifted=True), subject("b", 130_000)]
    found = choose(much, settings, 300.0, lambda _: FINE)
    assert (up(found), down(found)) == (["b"], ["a"])
    assert "others save more" in found.lower[0].because


@pytest.mark.parametrize("algorithm", [Algorithm.PAPER, Algorithm.SAVINGS])
def test_what_cools_comes_down(algorithm: Algorithm) -> None:
    found = choose([subject("a", 499, lifted=True), subject("b", 500, lifted=True)], Settings(algorithm), 10.0,
                   lambda _: FINE)  # fmt: skip
    assert down(found) == ["a"]
    assert found.lower[0].because == "499 packets, below 500"


@pytest.mark.parametrize("algorithm", [Algorithm.PAPER, Algorithm.SAVINGS])
def test_what_cannot_be_lifted_is_passed_over(algorithm: Algorithm) -> None:
    prospects = {name("a"): "80 entries would have to stand above the list, over 64", name("b"): FINE}
    found = choose([subject("a", 90_000), subject("b", 80_000)], Settings(algorithm), 300.0, prospects.__getitem__)
    assert up(found) == ["b"]


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_the_operator_has_the_last_word(algorithm: Algorithm) -> None:
    subjects = [
        subject("pinned", 90_000, wish=Wish.PINNED),
        subject("forbidden", 90_000, wish=Wish.FORBIDDEN),
        subject("was", 90_000, wish=Wish.FORBIDDEN, lifted=True),
    ]
    found = choose(subjects, Settings(algorithm), 300.0, lambda _: FINE)
    assert (up(found), down(found)) == ([], ["was"])
    assert found.lower[0].because == "it is forbidden"


@pytest.mark.parametrize("settings", [Settings(Algorithm.OFF), Settings(most_lifted=0)])
def test_off_and_a_budget_of_none_lift_nothing_and_take_down_what_is_up(settings: Settings) -> None:
    found = choose([subject("a", 90_000), subject("b", 90_000, lifted=True)], settings, 300.0, lambda _: FINE)
    assert (up(found), down(found)) == ([], ["b"])


def test_as_printed_nobody_is_lifted_where_no_rule_qualifies() -> None:
    """Rule "0", which the printed algorithm upgrades then, is nobody's; and a rule that is up is not lifted again."""
    settings = Settings(Algorithm.PAPER, as_printed=True)
    assert choose([subject("a", 10)], settings, 300.0, lambda _: FINE).lift == ()
    found = choose([subject("a", 9000, lifted=True), subject("b", 5000)], settings, 300.0, lambda _: FINE)
    assert (up(found), down(found)) == ([], [])


def test_shares_of_idle_and_never_used_rules() -> None:
    table = [subject("a", 5), subject("b", 0), subject("c", 0, idle_s=math.inf), subject("d", 0, idle_s=9_000.0)]
    found = choose(table, Settings(), 300.0, lambda _: FINE)
    assert (found.idle_share, found.never_used_share) == (3 / 4, 1 / 4)
    assert choose([], Settings(), 300.0, lambda _: FINE).idle_share == 0.0


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"interval_s": 0.0}, "interval_s"),
        ({"interval_s": math.nan}, "interval_s"),
        ({"interval_s": math.inf}, "interval_s"),
        ({"interval_s": 0.5}, "interval_s"),
        ({"upper": 499}, "upper"),
        ({"lower": -1}, "lower"),
        ({"most_lifted": -1}, "most_lifted"),
        ({"most_lifted": 257}, "most_lifted"),
        ({"hysteresis": -0.1}, "hysteresis"),
        ({"hysteresis": math.nan}, "hysteresis"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict[str, float], place: str) -> None:
    with pytest.raises(BadInput, match=f"^{place}: "):
        Settings(**wrong)  # type: ignore[arg-type]


@st.composite
def tables(draw: st.DrawFn) -> list[Subject]:
    wishes = st.sampled_from((None, None, None, *Wish))
    packets, idle_s, lifted = st.integers(0, 10**6), st.floats(0, 600), st.booleans()
    return [
        Subject(name(f"r{index}"), draw(packets), draw(idle_s), draw(lifted), draw(wishes))
        for index in range(draw(st.integers(0, 10)))
    ]


PROSPECTS = st.sampled_from((FINE, COARSE, Prospect(Look(500.0, 3), Look(20.0, 2)), "it cannot be"))


@given(tables(), st.integers(0, 4), st.sampled_from((Algorithm.OFF, Algorithm.PAPER, Algorithm.SAVINGS)), st.data())
def test_any_table_keeps_the_budget_and_says_of_every_move_why(
    table: list[Subject], budget: int, algorithm: Algorithm, data: st.DataObject
) -> None:
    prospects = {each.rule: data.draw(PROSPECTS) for each in table}
    found = choose(table, Settings(algorithm, most_lifted=budget), 60.0, prospects.__getitem__)
    was = {each.rule for each in table if each.lifted}
    lifted, lowered = ({verdict.rule for verdict in part} for part in (found.lift, found.lower))
    free = {each.rule for each in table if each.wish is None}
    assert lifted <= free - was
    assert lowered <= was
    assert len((was - lowered) | lifted) <= budget
    assert {verdict.rule for verdict in found.stays} == was - lowered
    assert all(verdict.because for verdict in (*found.lift, *found.lower, *found.stays))
    assert not any(isinstance(prospects[rule], str) for rule in lifted)
    again = choose(
        [Subject(e.rule, e.packets_since, e.idle_s, e.rule in (was - lowered) | lifted, e.wish) for e in table],
        Settings(algorithm, most_lifted=budget), 60.0, prospects.__getitem__,
    )  # fmt: skip
    if algorithm is Algorithm.SAVINGS:
        assert (again.lift, again.lower) == ((), ()), "the same counts move nothing twice"


@given(st.floats(0, 1e7), st.floats(1, 1e18))
def test_upcalls_are_between_none_and_one_a_connection(connections: float, regions: float) -> None:
    found = expected_upcalls(connections, regions)
    assert 0.0 <= found <= connections * (1 + 1e-6)


@pytest.mark.parametrize(
    ("connections", "regions", "wanted"),
    [(1000, 1, 0.0), (1000, 1e12, 1000.0), (1000, 1e18, 1000.0), (1_000_000, 10, 0.0), (1.0, 2.0, 0.5)],
)
def test_upcalls_worked_by_hand(connections: float, regions: float, wanted: float) -> None:
    """One region is always remembered, regions without number never; of two, a connection hits one: 2 x 1/2 x 1/2."""
    assert expected_upcalls(connections, regions) == pytest.approx(wanted, rel=1e-3, abs=1e-6)


def test_what_was_measured_comes_out() -> None:
    """132 against 85 us a connection where nearly every connection was an upcall."""
    thousand_a_second = 1000 * 10 / 2
    saved = Prospect(now=Look(1e9, 30), lifted=Look()).saves_us_per_s(thousand_a_second) / 1000
    assert saved == pytest.approx(132 - 85, rel=0.05)

"""Algorithm 1 against tables worked by hand, and what holds for any table."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.placement.popularity import PRINTED_NO_RULE, Sample, Thresholds, prioritise
from orchestrator.policy.model import RuleId

TABLE = (
    #       rule     now  before  idle lifted initial    delta
    Sample("dhcp", 90_000, 10_000, 0.5, initial=True),  # 80,000, but nobody's to move
    Sample("web", 12_000, 7_000, 0.1),  # 5,000
    Sample("dns", 9_000, 4_500, 2.0),  # 4,500
    Sample("ssh", 2_500, 2_500, 900.0),  # 0: idle
    Sample("old", 0, 0, 9_000.0),  # 0: idle, never used
    Sample("bulk", 7_500, 7_000, 0.2, lifted=True),  # 500: exactly the lower threshold
    Sample("cold", 4_100, 4_000, 60.0, lifted=True),  # 100
    Sample("gone", 40_000, 30_000, 301.0),  # 10,000, but nothing for longer than an interval
)


def test_the_table_as_printed() -> None:
    found = prioritise(TABLE, Thresholds(as_printed=True))
    assert found.lift == ("web",)
    assert found.lower == ("bulk", "cold")  # <=
    assert found.idle_share == pytest.approx(3 / 7)  # dhcp, which is not counted, counts as idle
    assert found.never_used_share == pytest.approx(1 / 7)


def test_the_table_repaired() -> None:
    found = prioritise(TABLE, Thresholds())
    assert found.lift == ("web",)
    assert found.lower == ("cold",)  # <, as the text says
    assert found.idle_share == pytest.approx(2 / 7)
    assert found.never_used_share == pytest.approx(1 / 7)
    assert found.because == "5000 packets, at least 2000"


def test_as_printed_the_shares_can_exceed_one_and_rule_zero_is_upgraded() -> None:
    table = [Sample("a", 0, 0, 1.0, initial=True), Sample("b", 0, 0, 1.0, initial=True), Sample("c", 5, 4, 1.0)]
    printed, repaired = (prioritise(table, Thresholds(as_printed=flag)) for flag in (True, False))
    assert (printed.lift, repaired.lift) == ((PRINTED_NO_RULE,), ())
    assert (printed.idle_share, repaired.idle_share) == (2.0, 0.0)
    assert (printed.never_used_share, repaired.never_used_share) == (2.0, 0.0)


def test_without_rules_the_printed_shares_are_no_numbers() -> None:
    assert math.isnan(prioritise([], Thresholds(as_printed=True)).idle_share)
    assert prioritise([], Thresholds()).idle_share == 0.0


def test_as_printed_a_lifted_rule_is_lifted_again() -> None:
    table = [Sample("a", 9000, 0, 1.0, lifted=True), Sample("b", 5000, 0, 1.0)]
    assert prioritise(table, Thresholds(as_printed=True)).lift == ("a",)
    assert prioritise(table, Thresholds()).lift == ("b",)


def test_a_counter_that_went_backwards_counts_what_came_since() -> None:
    table = [Sample("a", 2500, 100_000, 1.0), Sample("b", 2400, 0, 1.0)]
    assert prioritise(table, Thresholds()).lift == ("a",)
    assert prioritise(table, Thresholds(as_printed=True)).lift == ("b",)


def test_where_the_budget_is_spent_only_a_more_popular_rule_takes_a_place() -> None:
    table = [
        Sample("a", 9000, 0, 1.0, lifted=True),
        Sample("b", 3000, 0, 1.0, lifted=True),
        Sample("c", 4000, 0, 1.0),
    ]
    swapped = prioritise(table, Thresholds(most_lifted=2))
    assert (swapped.lift, swapped.lower) == (("c",), ("b",))
    assert swapped.because == "4000 packets, at least 2000, more than the 3000 of 'b'"
    better = [table[0], Sample("b", 4000, 0, 1.0, lifted=True), table[2]]
    kept = prioritise(better, Thresholds(most_lifted=2))
    assert (kept.lift, kept.lower) == ((), ())
    assert "none of them has fewer" in kept.because


def test_a_smaller_budget_takes_the_least_popular_down_and_none_lifts_nothing() -> None:
    assert prioritise(TABLE, Thresholds(most_lifted=0)).lower == ("cold", "bulk")
    assert prioritise(TABLE, Thresholds(most_lifted=0)).lift == ()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"interval_s": 0.0}, "interval_s"),
        ({"interval_s": float("nan")}, "interval_s"),
        ({"upper": 100, "lower": 100}, "upper"),
        ({"lower": -1}, "lower"),
        ({"most_lifted": -1}, "most_lifted"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict[str, float], place: str) -> None:
    with pytest.raises(BadInput, match=f"^{place}: "):
        Thresholds(**wrong)  # type: ignore[arg-type]


@st.composite
def tables(draw: st.DrawFn) -> list[Sample]:
    count = st.integers(0, 6000)
    return [
        Sample(
            RuleId(f"r{index}"),
            draw(count),
            draw(count),
            draw(st.floats(0, 600)),
            draw(st.booleans()),
            draw(st.booleans()),
        )
        for index in range(draw(st.integers(0, 12)))
    ]


@given(tables(), st.integers(0, 4))
def test_any_table_keeps_the_budget_and_moves_only_what_can_move(table: list[Sample], budget: int) -> None:
    found = prioritise(table, Thresholds(most_lifted=budget))
    known = {sample.rule: sample for sample in table}
    up = {sample.rule for sample in table if sample.lifted and not sample.initial}
    after = up - set(found.lower) | set(found.lift)
    assert len(after) <= budget
    assert set(found.lower) <= up
    assert not set(found.lift) & up
    assert not any(known[rule].initial for rule in (*found.lift, *found.lower))
    assert 0.0 <= found.never_used_share <= found.idle_share <= 1.0
    assert found == prioritise(table, Thresholds(most_lifted=budget))

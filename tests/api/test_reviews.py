"""Answers that are kept: looked for once a state, as many as are of use, and nothing of a look that failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api.questions import Reviews
from orchestrator.errors import Busy


def fails() -> int:
    raise Busy("others are at it")


def test_an_answer_is_looked_for_once_a_state() -> None:
    reviews, looks = Reviews(), iter(range(10))
    look: Callable[[], int] = lambda: next(looks)  # noqa: E731
    assert [reviews.of("blue", state, look) for state in (1, 1, 2, 2, 1)] == [0, 0, 1, 1, 2]
    assert reviews.of("red", 1, look) == 3


def test_a_look_that_fails_leaves_nothing_but_what_was_known() -> None:
    reviews = Reviews()
    for number in range(1000):
        with pytest.raises(Busy):
            reviews.of(("blue", number), 1, fails)
    assert not reviews.subjects
    assert reviews.of("blue", 1, lambda: 7) == 7
    with pytest.raises(Busy):
        reviews.of("blue", 2, fails)
    assert reviews.of("blue", 1, fails) == 7


def test_no_more_are_kept_than_were_asked_last() -> None:
    reviews = Reviews()
    for number in range(1000):
        assert reviews.of(number, 1, lambda number=number: number) == number  # type: ignore[misc]
    assert len(reviews.subjects) < 1000
    assert reviews.of(999, 1, fails) == 999

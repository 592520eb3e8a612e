"""Following the program: whatever is lost, doubled, late or out of order, the copy is right or asked for anew."""

from __future__ import annotations

import itertools
import queue
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from enforce.programs import change, program, rule
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import PATIENCE_S

from orchestrator.client import Held
from orchestrator.enforce.standing import Goal
from orchestrator.enforce.watch import Copy, Patience, Watch
from orchestrator.errors import Drifted, Stale, Unauthenticated, Unreachable
from orchestrator.program.delta import Delta
from orchestrator.program.edits import Edits
from orchestrator.program.program import Program
from orchestrator.program.wire import Received

VERSIONS = tuple(
    program([rule(number) for number in range(generation) if number % 3 != generation % 3], generation=generation)
    for generation in range(1, 9)
)
QUICK = Patience(watch_s=0.05, retry_s=0.001, longest_retry_s=0.01)


def follow(copy: Copy, answer: Program | Delta) -> Copy:
    """One answer; one that does not fit leaves the copy as it is."""
    try:
        return copy.followed_by(answer)
    except (Stale, Drifted):
        return copy


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=20))
def test_a_copy_is_always_one_of_the_published_programs_and_never_gets_older(
    answers: list[tuple[int, int, bool]],
) -> None:
    copy = Copy.of(VERSIONS[0])
    for base, target, whole in answers:
        answer = VERSIONS[target] if whole else change(VERSIONS[base], VERSIONS[target])
        before = copy.program
        copy = follow(copy, answer)
        version = VERSIONS[copy.program.generation - 1]
        assert sorted(copy.program.flows.rows(), key=repr) == sorted(version.flows.rows(), key=repr)
        assert copy.program.digest == version.digest
        assert copy.program.generation >= before.generation


def test_deltas_in_order_lead_to_the_last_program() -> None:
    copy = Copy.of(VERSIONS[0])
    for old, new in itertools.pairwise(VERSIONS):
        copy = copy.followed_by(change(old, new))
    assert copy.program.digest == VERSIONS[-1].digest
    assert copy.held == Held(VERSIONS[-1].digest, 8)


def test_a_delta_that_comes_twice_changes_nothing() -> None:
    delta = change(VERSIONS[0], VERSIONS[1])
    copy = Copy.of(VERSIONS[0]).followed_by(delta)
    assert copy.followed_by(delta) is copy


@pytest.mark.parametrize(
    "answer",
    [change(VERSIONS[3], VERSIONS[4]), change(VERSIONS[0], VERSIONS[1]), VERSIONS[1]],
    ids=["a delta from elsewhere", "an old delta", "an old program"],
)
def test_what_does_not_follow_is_refused(answer: Program | Delta) -> None:
    with pytest.raises(Stale):
        Copy.of(VERSIONS[2]).followed_by(answer)


def test_a_program_that_is_not_what_its_digest_says_is_refused() -> None:
    wrong = replace(VERSIONS[1], digest=VERSIONS[2].digest)
    with pytest.raises(Drifted, match="is not what its digest says"):
        Copy.of(wrong)
    lying = replace(change(VERSIONS[0], VERSIONS[1]), target=VERSIONS[2].digest)
    with pytest.raises(Drifted, match="generation 2"):
        Copy.of(VERSIONS[0]).followed_by(lying)


def test_a_delta_may_only_move_the_generation() -> None:
    same = replace(VERSIONS[0], generation=5)
    copy = Copy.of(VERSIONS[0]).followed_by(change(VERSIONS[0], same))
    assert copy.held == Held(VERSIONS[0].digest, 5)


class Source:
    """A service that answers from a list, as told; afterwards it has nothing newer."""

    def __init__(self, *answers: Received | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[Held | None] = []

    def follow_program(
        self, domain: str, held: Held | None = None, *, lasts_s: float = 30.0
    ) -> Iterator[Received | None]:
        assert domain == "pop1"
        self.asked.append(held)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        yield answer


class Honest:
    """A service that streams by what is held, over a line that loses, doubles, delays and reorders answers, and breaks
    now and then."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._current = 0
        self._sent: list[Program | Delta] = []

    def follow_program(
        self, domain: str, held: Held | None = None, *, lasts_s: float = 30.0
    ) -> Iterator[Program | Delta | None]:
        while self._random.random() < 0.8:
            answer = self._answer(held)
            yield answer
            held = held_after(answer) or held

    def _answer(self, held: Held | None) -> Program | Delta | None:
        self._current = min(self._current + self._random.randint(0, 2), len(VERSIONS) - 1)
        fate = self._random.random()
        if fate < 0.2:
            raise Unreachable("lost")
        if fate < 0.5 and self._sent:
            return self._random.choice(self._sent)
        new = VERSIONS[self._current]
        if held == Held(new.digest, new.generation):
            return None
        old = next((each for each in VERSIONS if held is not None and each.digest == held.digest), None)
        self._sent.append(change(old, new) if old is not None else new)
        return self._sent[-1]


def held_after(answer: Program | Delta | None) -> Held | None:
    """What a service takes for held by whom it sent this."""
    if answer is None:
        return None
    return Held(answer.digest if isinstance(answer, Program) else answer.target, answer.generation)


@pytest.fixture
def goals() -> queue.Queue[Goal]:
    return queue.Queue()


@pytest.fixture
def watching(goals: queue.Queue[Goal]) -> Iterator[list[Watch]]:
    """Watches to be stopped."""
    watches: list[Watch] = []
    yield watches
    for watch in watches:
        watch.stop()


@pytest.mark.parametrize("seed", range(8))
def test_over_the_worst_of_lines_the_last_program_arrives(
    seed: int, goals: queue.Queue[Goal], watching: list[Watch]
) -> None:
    watching.append(Watch(Honest(seed), "pop1", goals.put, patience=QUICK))
    watching[0].start()
    seen = 0
    while seen < len(VERSIONS):
        goal = goals.get(timeout=PATIENCE_S)
        assert goal.program.generation >= seen
        assert goal.program.digest == VERSIONS[goal.program.generation - 1].digest
        seen = goal.program.generation


def test_what_does_not_fit_makes_it_ask_for_the_whole(goals: queue.Queue[Goal], watching: list[Watch]) -> None:
    source = Source(VERSIONS[0], change(VERSIONS[3], VERSIONS[4]), VERSIONS[4])
    watching.append(Watch(source, "pop1", goals.put, patience=QUICK))
    watching[0].start()
    assert [goals.get(timeout=PATIENCE_S).program.generation for _ in range(2)] == [1, 5]
    assert source.asked[:3] == [None, Held(VERSIONS[0].digest, 1), None]


def test_edits_lead_where_their_delta_leads_and_those_from_elsewhere_to_the_whole(
    goals: queue.Queue[Goal], watching: list[Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.program.edits.LEAST_TEXT", 0)
    step, elsewhere = (Edits.of(change(VERSIONS[old], VERSIONS[old + 1])) for old in (1, 5))
    assert step is not None
    assert elsewhere is not None
    source = Source(step, VERSIONS[1], step, step, elsewhere, VERSIONS[7])
    watching.append(Watch(source, "pop1", goals.put, patience=QUICK))
    watching[0].start()
    seen = [goals.get(timeout=PATIENCE_S) for _ in range(3)]
    assert [each.program.generation for each in seen] == [2, 3, 8]
    assert [[each.target for each in goal.trail] for goal in seen] == [[], [VERSIONS[2].digest], []]
    third = Held(VERSIONS[2].digest, 3)
    assert source.asked[:6] == [None, None, Held(VERSIONS[1].digest, 2), third, third, None]


def test_edits_that_cannot_be_followed_make_it_ask_for_the_whole(
    goals: queue.Queue[Goal], watching: list[Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.program.edits.LEAST_TEXT", 0)
    step = Edits.of(change(VERSIONS[0], VERSIONS[1]))
    assert step is not None
    added = replace(step.added, instruction_set=(b"\x81",) * len(step.added.instruction_set))
    source = Source(VERSIONS[0], replace(step, added=added), VERSIONS[1])
    watching.append(Watch(source, "pop1", goals.put, patience=QUICK))
    watching[0].start()
    assert [goals.get(timeout=PATIENCE_S).program.generation for _ in range(2)] == [1, 2]
    assert source.asked[:3] == [None, Held(VERSIONS[0].digest, 1), None]


def test_deltas_leave_a_trail_and_whole_programs_none(goals: queue.Queue[Goal], watching: list[Watch]) -> None:
    first, second = change(VERSIONS[0], VERSIONS[1]), change(VERSIONS[1], VERSIONS[2])
    watching.append(Watch(Source(VERSIONS[0], first, second, VERSIONS[5]), "pop1", goals.put, patience=QUICK))
    watching[0].start()
    trails = [goals.get(timeout=PATIENCE_S).trail for _ in range(4)]
    assert [[each.target for each in trail] for trail in trails] == [
        [],
        [first.target],
        [first.target, second.target],
        [],
    ]


def test_it_begins_with_what_is_remembered_until_the_service_says_that_it_holds(
    goals: queue.Queue[Goal], watching: list[Watch]
) -> None:
    source = Source(Unreachable("away"), Unauthenticated("who?"), None)
    watching.append(Watch(source, "pop1", goals.put, known=VERSIONS[2], patience=QUICK))
    watching[0].start()
    first, second = goals.get(timeout=PATIENCE_S), goals.get(timeout=PATIENCE_S)
    assert (first.program, first.remembered) == (VERSIONS[2], True)
    assert (second.program, second.remembered) == (VERSIONS[2], False)
    assert source.asked[:3] == [Held(VERSIONS[2].digest, 3)] * 3


def test_a_fault_of_ours_does_not_end_the_watch(goals: queue.Queue[Goal], watching: list[Watch]) -> None:
    source = Source(VERSIONS[0], ZeroDivisionError("a bug"), VERSIONS[1])
    watching.append(Watch(source, "pop1", goals.put, patience=QUICK))
    watching[0].start()
    assert [goals.get(timeout=PATIENCE_S).program.generation for _ in range(2)] == [1, 2]
    assert source.asked[2] is None, "after a fault the whole program is asked for"


def test_a_damaged_memory_is_none(goals: queue.Queue[Goal], watching: list[Watch]) -> None:
    damaged = replace(VERSIONS[2], digest=bytes(16))
    watching.append(Watch(Source(VERSIONS[0]), "pop1", goals.put, known=damaged, patience=QUICK))
    watching[0].start()
    assert goals.get(timeout=PATIENCE_S).program.generation == 1


def test_another_domains_memory_is_none(goals: queue.Queue[Goal], watching: list[Watch]) -> None:
    source = Source(VERSIONS[0])
    watching.append(Watch(source, "pop1", goals.put, known=replace(VERSIONS[2], domain="pop2"), patience=QUICK))
    watching[0].start()
    goals.get(timeout=PATIENCE_S)
    assert source.asked[0] is None

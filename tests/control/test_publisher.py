"""What enforcement points are sent, whatever they hold."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.control import publisher as module
from orchestrator.control.publisher import KEPT_PROGRAMS, Answer, AnswerKind, Edition, Held, Publisher
from orchestrator.errors import Busy
from orchestrator.program.delta import apply, between
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import decode_delta, decode_program


def program(rows: frozenset[int], generation: int, domain: str = "pop") -> Program:
    """A program with a row for each number."""
    flows = FlowTable.of(Flow(0, 300 + row, bytes([row]), b"", row, row % 3) for row in sorted(rows))
    return Program.of(domain, Tier.HOST, generation, flows, ("uplink",))


def held(of: Program) -> Held:
    return Held(of.digest, of.generation)


def contents(of: Program) -> tuple[bytes, int, frozenset[int]]:
    return of.digest, of.generation, frozenset(row.cookie for row in of.flows.rows())


def brought_up_to_date(start: Program, answer: Answer) -> Program:
    if answer.kind is AnswerKind.PROGRAM:
        return decode_program(answer.body)
    return apply(start, decode_delta(answer.body))


def test_whoever_publishes_does_not_look_for_a_large_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", 0)
    first, second = (program(frozenset({generation}), generation) for generation in (1, 2))
    edition = Edition(first).succeeded_by(second)
    assert edition.ready(held(first)) is None
    assert contents(brought_up_to_date(first, edition.answer(held(first)))) == contents(second)
    monkeypatch.undo()
    assert Edition(first).succeeded_by(second).ready(held(first)) is not None


row_sets = st.frozensets(st.integers(0, 9), max_size=6)


@settings(max_examples=150, deadline=None, database=None)
@given(
    history=st.lists(row_sets, min_size=1, max_size=25), start=st.integers(0, 24), large=st.sampled_from((0, 1 << 20))
)
def test_whatever_is_held_the_answer_leads_to_the_current_program(
    history: list[frozenset[int]], start: int, large: int
) -> None:
    published = Publisher()
    programs = [program(rows, generation) for generation, rows in enumerate(history, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE_BYTES", large)
        for each in programs:
            assert published.publish(each)
    current, old = programs[-1], programs[start % len(programs)]
    answer = asyncio.run(published.watch("pop", held(old), 0))
    if old is current:
        assert answer is None
    else:
        assert answer is not None
        assert answer.generation == current.generation
        assert contents(brought_up_to_date(old, answer)) == contents(current)
    nothing_held = asyncio.run(published.watch("pop", None, 0))
    assert nothing_held is not None
    assert contents(decode_program(nothing_held.body)) == contents(current)


@settings(max_examples=150, deadline=None, database=None)
@given(history=st.lists(row_sets, min_size=2, max_size=12), bases=st.lists(st.integers(0, 11), min_size=12))
def test_a_change_from_any_recent_program_leads_from_the_current_one(
    history: list[frozenset[int]], bases: list[int]
) -> None:
    """As it comes from services that write in turns: each starts from what it made last."""
    programs = [program(rows, generation) for generation, rows in enumerate(history, 1)]
    edition = Edition(programs[0])
    for place, (before, following) in enumerate(pairwise(programs)):
        change = between(programs[bases[place] % (place + 1)], following)
        edition = edition.succeeded_by(following, change)
        answer = edition.ready(held(before))
        assert answer is not None
        if before.digest != following.digest:
            assert decode_delta(answer.body).base == before.digest
        assert contents(brought_up_to_date(before, answer)) == contents(following)


def test_a_small_change_from_a_recent_program_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [program(frozenset({1, generation + 1}), generation) for generation in range(1, 6)]
    edition = Edition(programs[0])
    for before, following in pairwise(programs):
        edition = edition.succeeded_by(following, between(before, following))
    last = program(frozenset({2, 9}), 6)
    change = between(programs[1], last)
    monkeypatch.setattr(module, "between", None)
    answer = edition.succeeded_by(last, change).ready(held(programs[-1]))
    assert answer is not None
    assert contents(brought_up_to_date(programs[-1], answer)) == contents(last)


@settings(max_examples=50, deadline=None, database=None)
@given(order=st.permutations(range(1, 9)))
def test_an_older_generation_never_replaces_a_newer_one(order: list[int]) -> None:
    published = Publisher()
    newest = 0
    for generation in order:
        assert published.publish(program(frozenset({generation}), generation)) == (generation > newest)
        newest = max(newest, generation)
        current = published.program("pop")
        assert current is not None
        assert current.generation == newest


def test_recent_programs_get_deltas_and_older_ones_the_whole() -> None:
    published = Publisher()
    programs = [program(frozenset({index, index + 1}), index) for index in range(1, 30)]
    for each in programs:
        published.publish(each)
    kinds = [answer.kind for each in programs[:-1] if (answer := asyncio.run(published.watch("pop", held(each), 0)))]
    assert kinds == [AnswerKind.PROGRAM] * (28 - KEPT_PROGRAMS) + [AnswerKind.DELTA] * KEPT_PROGRAMS


def test_memory_for_old_programs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    edition = Edition(program(frozenset({0}), 1))
    size = sum(block.nbytes for block in edition.program.blocks)
    monkeypatch.setattr(module, "KEPT_BYTES", 4 * size)
    for generation in range(2, 12):
        edition = edition.succeeded_by(program(frozenset({generation}), generation))
    kinds = [edition.answer(held(program(frozenset({generation}), generation))).kind for generation in range(2, 11)]
    assert kinds == [AnswerKind.PROGRAM] * 5 + [AnswerKind.DELTA] * 4


def test_the_answer_for_who_holds_the_program_before_is_at_hand() -> None:
    published = Publisher()
    first, second = program(frozenset({1}), 1), program(frozenset({2}), 2)
    published.publish(first)
    published.publish(second)
    edition = published.editions["pop"]
    assert edition.ready(held(first)) is not None
    assert edition.ready(None) is None
    whole = edition.answer(None)
    assert edition.ready(None) is whole


def test_the_same_content_at_a_newer_generation_is_a_delta_without_rows() -> None:
    published = Publisher()
    old, new = program(frozenset({1, 2}), 1), program(frozenset({1, 2}), 5)
    published.publish(old)
    published.publish(new)
    answer = asyncio.run(published.watch("pop", held(old), 0))
    assert answer is not None
    delta = decode_delta(answer.body)
    assert (delta.is_empty, delta.generation, answer.kind) == (True, 5, AnswerKind.DELTA)
    assert asyncio.run(published.watch("pop", Held(old.digest, None), 0)) is None


def test_a_watch_ends_when_something_is_published() -> None:
    published = Publisher()
    first, second = program(frozenset({1}), 1), program(frozenset({2}), 2)
    published.publish(first)

    async def story() -> Answer | None:
        threading.Timer(0.05, lambda: published.publish(second)).start()
        return await published.watch("pop", held(first), 10)

    answer = asyncio.run(story())
    assert answer is not None
    assert answer.generation == 2
    assert published.watching == 0


def test_a_program_wakes_nobody_who_waits_for_another_domains() -> None:
    published = Publisher()
    first = program(frozenset({1}), 1)
    published.publish(first)
    looks: list[int] = []

    def look() -> int:
        looks.append(published.watching)
        return 0

    async def story() -> int:
        waiting = asyncio.create_task(published.watch("pop", held(first), 30, at_least=look))
        while not published.watching:
            await asyncio.sleep(0)
        before = len(looks)
        published.publish(program(frozenset({2}), 2, "other"))
        published.drop("other")
        for _ in range(3):
            await asyncio.sleep(0)
        woken = len(looks) - before
        published.publish(program(frozenset({2}), 2))
        await waiting
        return woken

    assert asyncio.run(story()) == 0
    assert len(looks) > 1


def test_a_program_older_than_the_store_is_not_given_out() -> None:
    published = Publisher()
    with pytest.raises(Busy):
        asyncio.run(published.watch("pop", None, 0))
    published.publish(program(frozenset({1}), 1))
    with pytest.raises(Busy, match="being compiled"):
        asyncio.run(published.watch("pop", None, 0.05, at_least=lambda: 2))
    published.publish(program(frozenset({2}), 2))
    assert asyncio.run(published.watch("pop", None, 0, at_least=lambda: 2)) is not None


def test_closing_answers_all_who_wait() -> None:
    published = Publisher()
    only = program(frozenset({1}), 1)
    published.publish(only)

    async def story() -> Answer | None:
        threading.Timer(0.05, published.close).start()
        return await asyncio.wait_for(published.watch("pop", held(only), 30), 5)

    assert asyncio.run(story()) is None
    assert asyncio.run(published.watch("pop", held(only), 30)) is None


def test_domains_do_not_mix_and_may_go() -> None:
    published = Publisher()
    for name, rows in (("a", {1}), ("b", {2})):
        published.publish(program(frozenset(rows), 1, name))
    answer = asyncio.run(published.watch("b", None, 0))
    assert answer is not None
    assert decode_program(answer.body).domain == "b"
    published.drop("b")
    assert [each.domain for each in published.programs()] == ["a"]
    with pytest.raises(Busy):
        asyncio.run(published.watch("b", None, 0))

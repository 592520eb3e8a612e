"""Reads are shared, kept for a moment, kept longer where they take long, and honest about a lost service."""

from __future__ import annotations

import asyncio
import threading

import pytest
from patience import PATIENCE_S

from api.console.reading import Reading
from orchestrator.errors import NotFound, Unreachable


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Counts how often it is read; a read takes as long as `takes` says, by the clock."""

    def __init__(self, clock: Clock, takes: float = 0.0) -> None:
        self._clock = clock
        self._takes = takes
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        self._clock.now += self._takes
        return self.reads


def test_pages_that_want_the_same_at_the_same_time_share_a_read() -> None:
    clock = Clock()
    held, source = threading.Event(), Source(clock)

    def slow() -> int:
        held.wait(PATIENCE_S)
        return source()

    async def both() -> list[int]:
        reading = Reading(clock)
        wanted = [asyncio.create_task(reading.get("hits", slow)) for _ in range(20)]
        await asyncio.sleep(0.01)
        held.set()
        return await asyncio.gather(*wanted)

    assert asyncio.run(both()) == [1] * 20
    assert source.reads == 1


@pytest.mark.parametrize(("takes", "later", "reads"), [(0.0, 0.9, 1), (0.0, 1.1, 2), (0.5, 4.0, 1), (0.5, 5.1, 2)])
def test_what_was_read_a_moment_ago_is_not_read_again(takes: float, later: float, reads: int) -> None:
    async def twice() -> int:
        clock = Clock()
        reading, source = Reading(clock), Source(clock, takes)
        begun = clock.now
        await reading.get("hits", source, fresh_s=1.0)
        clock.now = begun + later
        await reading.get("hits", source, fresh_s=1.0)
        return source.reads

    assert asyncio.run(twice()) == reads


def test_what_must_be_as_it_is_now_is_read_again_however_long_it_took() -> None:
    async def twice() -> int:
        clock = Clock()
        reading, source = Reading(clock), Source(clock, takes=2.0)
        await reading.get("findings", source, fresh_s=0.5, rest=0)
        await reading.get("findings", source, fresh_s=0.5, rest=0)
        return source.reads

    assert asyncio.run(twice()) == 2


def test_different_things_are_read_each_and_a_change_makes_all_of_them_old() -> None:
    async def several() -> int:
        clock = Clock()
        reading, source = Reading(clock), Source(clock)
        await reading.get("a", source)
        await reading.get("b", source)
        reading.forget()
        await reading.get("a", source)
        return source.reads

    assert asyncio.run(several()) == 3


def test_a_lost_service_is_noted_until_it_answers_and_is_asked_again_at_once() -> None:
    async def lose_and_find() -> None:
        reading = Reading(Clock())

        def fail() -> int:
            raise Unreachable("nobody there")

        with pytest.raises(Unreachable):
            await reading.get("a", fail)
        assert reading.lost == "nobody there"
        assert await reading.get("a", lambda: 7) == 7
        assert reading.lost is None

    asyncio.run(lose_and_find())


def test_what_is_refused_is_raised_and_says_nothing_about_the_service() -> None:
    async def refuse() -> None:
        reading = Reading(Clock())

        def fail() -> int:
            raise NotFound("no such thing")

        with pytest.raises(NotFound):
            await reading.get("a", fail)
        assert reading.lost is None

    asyncio.run(refuse())

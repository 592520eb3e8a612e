"""Waking coroutines from threads."""

from __future__ import annotations

import asyncio
import threading
import time

from patience import PATIENCE_S

from orchestrator.control.signals import Signal


def test_what_is_there_already_is_not_waited_for() -> None:
    async def story() -> str | None:
        return await Signal().until(lambda: given("now"), 10)

    assert asyncio.run(story()) == "now"


def test_time_runs_out() -> None:
    async def story() -> str | None:
        return await Signal().until(lambda: given(None), 0.05)

    started = time.monotonic()
    assert asyncio.run(story()) is None
    assert time.monotonic() - started >= 0.05


def test_everybody_is_woken_from_another_thread() -> None:
    signal, box = Signal(), Box()

    async def story() -> list[str | None]:
        waits = asyncio.gather(*(signal.until(box.look, PATIENCE_S) for _ in range(20)))
        threading.Timer(0.05, lambda: box.put("it", signal)).start()
        return await waits

    assert asyncio.run(story()) == ["it"] * 20
    assert signal.waiting == 0


def test_what_happens_while_somebody_looks_is_not_missed() -> None:
    """The signal fires after the look began and before the wait: it must end the wait."""
    signal, box = Signal(), Box()

    async def look_slowly() -> str | None:
        seen = box.value
        await asyncio.sleep(0.05)
        return seen

    async def story() -> str | None:
        waiting = asyncio.create_task(signal.until(look_slowly, PATIENCE_S))
        await asyncio.sleep(0.02)
        box.put("it", signal)
        return await asyncio.wait_for(waiting, PATIENCE_S / 2)

    assert asyncio.run(story()) == "it"


def test_a_loop_that_has_ended_is_passed_over() -> None:
    signal = Signal()
    loop = asyncio.new_event_loop()
    task = loop.create_task(signal.until(lambda: given(None), 10))
    loop.run_until_complete(asyncio.sleep(0))
    loop.stop()
    loop.run_forever()
    assert signal.waiting == 1
    loop.close()
    signal.fire()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was left behind on purpose


def test_some_look_again_without_a_signal() -> None:
    box = Box()

    async def story() -> str | None:
        box.value = None
        threading.Timer(0.1, lambda: setattr(box, "value", "late")).start()
        return await Signal().until(box.look, PATIENCE_S, recheck_s=0.02)

    started = time.monotonic()
    assert asyncio.run(story()) == "late"
    assert time.monotonic() - started < PATIENCE_S / 2


async def given(value: str | None) -> str | None:
    return value


class Box:
    def __init__(self) -> None:
        self.value: str | None = None

    def put(self, value: str, signal: Signal) -> None:
        self.value = value
        signal.fire()

    async def look(self) -> str | None:
        return self.value

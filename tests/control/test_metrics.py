"""Metrics for Prometheus: who asks for them often costs no more than who asks once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from patience import PATIENCE_S
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.metrics import Metrics


class Slow(Collector):
    """Waits at each scrape until it may go on."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.begun, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.scrapes += 1
        self.begun.release()
        assert self.goes_on.acquire(timeout=PATIENCE_S)
        yield GaugeMetricFamily("scrapes", "How often it was asked", self.scrapes)


def test_who_asks_during_a_scrape_is_answered_by_the_next_one_together_with_all_others() -> None:
    metrics, slow = Metrics(), Slow()
    metrics.registry.register(slow)

    async def ask() -> tuple[bytes, list[bytes]]:
        first = asyncio.create_task(metrics.shared_text())
        assert await asyncio.to_thread(slow.begun.acquire, timeout=PATIENCE_S)
        later = [asyncio.create_task(metrics.shared_text()) for _ in range(50)]
        slow.goes_on.release(60)
        return await first, await asyncio.gather(*later)

    first, later = asyncio.run(ask())
    assert b"\nscrapes 1.0" in first
    assert all(b"\nscrapes 2.0" in each for each in later)
    assert slow.scrapes == 2

"""A classifier in user space beside a router in namespaces: its queues and its packet filter are the router's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from enforce.contract_filters import corner_packets

from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.tool import Led, QueueDriver, QueueTool
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import Router, RouterMachine
from orchestrator.policy.model import Packet
from orchestrator.wire.firewalls import Plane


class QueueBench:
    """See `enforce.contract_filters.Bench`."""

    plane = Plane.QUEUE

    def __init__(self, router: Router, setup: Setup, variant: str, packets: Sequence[Packet]) -> None:
        self.router, self.packets = router, packets
        self.machine = RouterMachine(router)
        self._variant = variant
        self.tool = QueueTool(self.machine, setup, Led(), variant)
        self.driver = QueueDriver(self.tool)

    def run(self, command: Sequence[str], text: str) -> str:
        """As a foreign hand: the same kind of iptables as the driver's."""
        program, *options = command
        return self.router.run(program.replace("tables-", f"tables-{self._variant}-"), *options, text=text)

    def declare(self, legs: Legs) -> None:
        self.driver = QueueDriver(self.tool, legs)

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        return self.router.fire(packets)

    def fail(self, words: str) -> None:
        raise NotImplementedError(words)


@contextmanager
def queue_bench(layout: Layout, setup: Setup = Setup(), variant: str = "legacy") -> Iterator[QueueBench]:  # noqa: B008
    """A router whose packets are queued to workers of this process."""
    with Router(layout.prefix) as router:
        some = corner_packets()
        packets = [packet for packet, came in zip(some, router.fire(some), strict=True) if came]
        bench = QueueBench(router, setup, variant, packets)
        try:
            yield bench
        finally:
            bench.tool.engine.stop()

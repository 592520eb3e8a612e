"""The packet filters' contract over a classifier in user space, its queues in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from enforce.contract_filters import Bench, corner_packets
from enforce.queue_contract import QueueContract

from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.fake import FakeMachine
from orchestrator.enforce.drivers.queue.tool import Led, QueueDriver, QueueTool
from orchestrator.policy.model import Packet
from orchestrator.wire.firewalls import Plane


class QueueBench:
    plane = Plane.QUEUE

    def __init__(self, setup: Setup = Setup()) -> None:  # noqa: B008
        self.machine = FakeMachine()
        self.packets = corner_packets()
        self.run = self.machine.run
        self.tool = QueueTool(self.machine, setup, Led())
        self.driver = QueueDriver(self.tool)

    def declare(self, legs: Legs) -> None:
        self.driver = QueueDriver(self.tool, legs)

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        return self.machine.forward(packets)

    def fail(self, words: str) -> None:
        """The kernel's rule needs to be written anew, and that fails."""
        self.run(("iptables-restore", "--noflush"), "*filter\n-A FORWARD -j DROP\nCOMMIT\n")
        self.machine.iptables.fails.append(words)


class TestFakeQueues(QueueContract):
    @pytest.fixture
    def bench(self) -> Iterator[Bench]:
        bench = QueueBench()
        engine = bench.driver.engine
        yield bench
        engine.stop()

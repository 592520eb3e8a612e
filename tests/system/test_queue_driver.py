"""A classifier in user space over the kernel's own queues, with real packets: the contract, and faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from enforce.contract_filters import Bench
from enforce.queue_contract import QueueContract
from system.queued import queue_bench

from orchestrator.lab.layout import Layout


class TestQueuesOfIptablesLegacy(QueueContract):
    fails_at_will: ClassVar[bool] = False

    @pytest.fixture
    def bench(self, layout: Layout) -> Iterator[Bench]:
        with queue_bench(layout) as bench:
            yield bench


class TestQueuesOfIptablesNft(QueueContract):
    fails_at_will: ClassVar[bool] = False

    @pytest.fixture
    def bench(self, layout: Layout) -> Iterator[Bench]:
        with queue_bench(layout, variant="nft") as bench:
            yield bench

"""The packet filters' contract over the fakes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from enforce.contract_filters import FilterContract, corner_packets
from enforce.contract_stateless import StatelessContract
from enforce.contract_tracked import TrackedBench, TrackedContract

from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce.drivers.iptables.fake import FakeIptables
from orchestrator.enforce.drivers.iptables.tool import iptables_driver
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.policy.model import Packet
from orchestrator.wire.firewalls import Plane


class FakeBench:
    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.packets = corner_packets()
        self.machine = FakeNft() if plane is Plane.NFTABLES else FakeIptables()
        self.run = self.machine.run
        self.driver = nftables_driver(self.run) if plane is Plane.NFTABLES else iptables_driver("", self.run)

    def declare(self, legs: Legs) -> None:
        nftables = self.plane is Plane.NFTABLES
        self.driver = nftables_driver(self.run, legs) if nftables else iptables_driver("", self.run, legs)

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        return [self.machine.forward(packet, came_by="left") for packet in packets]

    def answer(self, packets: Sequence[Packet]) -> list[bool]:
        return [self.machine.forward(packet, came_by="right") for packet in packets]

    def fill_table(self) -> None:
        self.machine.connections.fill_table()

    def empty_table(self) -> None:
        self.machine.connections.empty_table()

    def fail(self, words: str) -> None:
        # nftables tries a second time, with everything made anew
        self.machine.fails += [words] * (2 if self.plane is Plane.NFTABLES else 1)


class TestFakeNftables(FilterContract, TrackedContract, StatelessContract):
    @pytest.fixture
    def bench(self) -> TrackedBench:
        return FakeBench(Plane.NFTABLES)


class TestFakeIptables(FilterContract, TrackedContract):
    @pytest.fixture
    def bench(self) -> TrackedBench:
        return FakeBench(Plane.IPTABLES)

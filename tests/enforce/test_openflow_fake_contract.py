"""The driver's contract over the fake switch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from enforce.contract_driver import Bench, ByRow, DriverContract
from enforce.contract_groups import GroupContract
from enforce.contract_meters import MeterContract
from enforce.contract_spread import PORTS, SpreadContract

from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.program.program import Tier


class FakeBench:
    def __init__(
        self,
        driver: type[OpenFlowDriver] = OpenFlowDriver,
        ports: Sequence[str] = ("vm1", "vm2", "vm3", "wan0"),
        tier: Tier = Tier.HOST,
    ) -> None:
        self.switch = FakeSwitch({name: number for number, name in enumerate(ports, 1)})
        self._channel = channel_to(self.switch)
        self.stranger = channel_to(self.switch)
        self.driver = driver(self._channel, uplink="wan0", tier=tier)
        self.epoch = 1
        self.driver.start(self.epoch)

    def forward(self, frame: bytes, port: str) -> list[tuple[str, bytes]]:
        return self.switch.forward(frame, port)

    def settle(self) -> None:
        """The fake counts at once."""

    def limit(self, table: int, flows: int) -> None:
        self.switch.limits[table] = flows

    def disconnect(self) -> None:
        self._channel.close()


@pytest.fixture
def bench() -> Bench:
    return FakeBench()


class TestFakeSwitch(DriverContract):
    """Everything is inherited."""


class TestFakeSwitchByRow(DriverContract):
    """The same, with every change written and read back row by row."""

    @pytest.fixture
    def bench(self) -> Bench:
        return FakeBench(ByRow)


class TestFakeSwitchGroups(GroupContract):
    """Everything is inherited."""


class TestFakeSwitchMeters(MeterContract):
    """Everything is inherited."""


class TestFakeSwitchSpreading(SpreadContract):
    """Everything is inherited."""

    @pytest.fixture
    def bench(self) -> Bench:
        return FakeBench(ports=PORTS, tier=Tier.SPREAD)

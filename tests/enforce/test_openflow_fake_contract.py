"""The driver's contract over the fake switch."""

from __future__ import annotations

import pytest
from enforce.contract_driver import Bench, ByRow, DriverContract

from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to


class FakeBench:
    def __init__(self, driver: type[OpenFlowDriver] = OpenFlowDriver) -> None:
        self.switch = FakeSwitch({"vm1": 1, "vm2": 2, "vm3": 3, "wan0": 4})
        self._channel = channel_to(self.switch)
        self.stranger = channel_to(self.switch)
        self.driver = driver(self._channel, uplink="wan0")
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

"""The driver's contract over a real Open vSwitch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enforce.contract_driver import Bench, ByRow, DriverContract
from enforce.real_switch import RealSwitch

from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver

pytestmark = pytest.mark.system


class RealBench:
    def __init__(self, switch: RealSwitch, driver: type[OpenFlowDriver]) -> None:
        self.switch = switch
        self._link, self._other = switch.connect(), switch.connect()
        self.stranger = self._other.channel
        self.driver = driver(self._link.channel, uplink="wan0")
        self.epoch = next(switch.epochs)
        self.driver.start(self.epoch)

    def forward(self, frame: bytes, port: str) -> list[tuple[str, bytes]]:
        self.switch.settle()
        return self.switch.forward(frame, port)

    def settle(self) -> None:
        self.switch.settle()

    def limit(self, table: int, flows: int) -> None:
        self.switch.limit(table, flows)

    def disconnect(self) -> None:
        self._link.close()

    def close(self) -> None:
        self._link.close()
        self._other.close()


def benches(real_switch: RealSwitch, driver: type[OpenFlowDriver]) -> Iterator[Bench]:
    real_switch.reset()
    bench = RealBench(real_switch, driver)
    yield bench
    bench.close()


class TestOpenVSwitch(DriverContract):
    """Everything is inherited."""

    @pytest.fixture
    def bench(self, real_switch: RealSwitch) -> Iterator[Bench]:
        yield from benches(real_switch, OpenFlowDriver)


class TestOpenVSwitchByRow(DriverContract):
    """The same, with every change written and read back row by row."""

    @pytest.fixture
    def bench(self, real_switch: RealSwitch) -> Iterator[Bench]:
        yield from benches(real_switch, ByRow)

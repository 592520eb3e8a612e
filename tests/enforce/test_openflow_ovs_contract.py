"""The driver's contract over a real Open vSwitch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from enforce.contract_driver import Bench, ByRow, DriverContract
from enforce.contract_groups import GroupContract
from enforce.contract_meters import MeterContract
from enforce.contract_spread import MEMBERS, NAMES, PORTS, SpreadContract, answer, connections, fair, spread
from enforce.dummy_ovs import missing
from enforce.real_switch import RealSwitch
from enforce.test_openflow_fake_contract import FakeBench

from orchestrator.compile.spread import Member, MemberState, Spread, spread_program
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Tier
from orchestrator.scaling.buckets import NOBODY, Owners, formers

pytestmark = pytest.mark.system

SYN = 0x02


class RealBench:
    def __init__(self, switch: RealSwitch, driver: type[OpenFlowDriver], tier: Tier = Tier.HOST) -> None:
        self.switch = switch
        self._link, self._other = switch.connect(), switch.connect()
        self.stranger = self._other.channel
        self.driver = driver(self._link.channel, uplink="wan0", tier=tier)
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


def benches(real_switch: RealSwitch, driver: type[OpenFlowDriver], tier: Tier = Tier.HOST) -> Iterator[Bench]:
    real_switch.reset()
    bench = RealBench(real_switch, driver, tier)
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


class TestOpenVSwitchGroups(GroupContract):
    """Everything is inherited."""

    @pytest.fixture
    def bench(self, real_switch: RealSwitch) -> Iterator[Bench]:
        yield from benches(real_switch, OpenFlowDriver)


class TestOpenVSwitchMeters(MeterContract):
    """Everything is inherited."""

    @pytest.fixture
    def bench(self, real_switch: RealSwitch) -> Iterator[Bench]:
        yield from benches(real_switch, OpenFlowDriver)


@pytest.fixture(scope="module")
def spreading_switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSwitch]:
    """A switch with the ports of a spreading one."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    switch = RealSwitch(tmp_path_factory.mktemp("ovs"), PORTS)
    yield switch
    switch.stop()


class TestOpenVSwitchSpreading(SpreadContract):
    """Everything is inherited."""

    @pytest.fixture
    def bench(self, spreading_switch: RealSwitch) -> Iterator[Bench]:
        yield from benches(spreading_switch, OpenFlowDriver, Tier.SPREAD)

    def test_the_fake_hashes_as_the_switch_does(self, bench: Bench) -> None:
        """So what is proven of the owner table over the fake holds here, bucket by bucket."""
        fake = FakeBench(ports=PORTS, tier=Tier.SPREAD)
        self._hold(bench, spread(*NAMES, stateful=True))
        self._hold(fake, spread(*NAMES, stateful=True))
        for family in Family:
            for protocol in (TCP, UDP):
                packets = connections(family, protocol)
                assert self._met(bench, packets, "l") == self._met(fake, packets, "l")

    def test_while_a_firewall_drains_it_keeps_what_began_with_it_and_gets_nothing_new(self, bench: Bench) -> None:
        """The switch notes which connections begin meanwhile; what it notes is no part of the program."""
        old = spread("a", "b", stateful=True)
        self._hold(bench, old)
        running, fresh = connections()[:40], connections()[40:80]
        before = self._met(bench, running, "l")
        moved = fair("a", before=old.owners)
        a, b, _ = MEMBERS
        drains = replace(b, state=MemberState.DRAINING)
        former = formers(old.owners, NOBODY, moved, {"b"})
        self._hold(bench, Spread((a, drains), moved, stateful=True, former=former), 2)
        assert "b" in before
        assert self._met(bench, running, "l") == before
        assert self._met(bench, map(answer, running), "r") == before
        began = [replace(packet, tcp_flags=SYN) for packet in fresh]
        assert set(self._met(bench, began, "l")) == {"a"}
        assert set(self._met(bench, fresh, "l")) == {"a"}
        assert set(self._met(bench, map(answer, fresh), "r")) == {"a"}
        assert len(bench.driver.observe().flows) == len(bench.driver.resolve(*self._rows(a, drains, moved, former)))
        self._hold(bench, Spread((a,), moved, stateful=True), 3)
        assert set(self._met(bench, (*running, *fresh), "l")) == {"a"}

    @staticmethod
    def _rows(a: Member, drains: Member, owners: Owners, former: Owners) -> tuple[FlowTable, tuple[str, ...]]:
        program = spread_program(Spread((a, drains), owners, stateful=True, former=former), domain="x", generation=1)
        return program.flows, program.ports

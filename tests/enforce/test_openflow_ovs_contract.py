"""The driver's contract over a real Open vSwitch."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from enforce.contract_driver import Bench, ByRow, DriverContract
from enforce.contract_groups import GroupContract
from enforce.contract_meters import MeterContract
from enforce.contract_spread import (
    MEMBERS,
    NAMES,
    PORTS,
    SpreadContract,
    answer,
    begins,
    connections,
    draining,
    fair,
    goes_on,
    spread,
)
from enforce.dummy_ovs import missing
from enforce.real_switch import RealSwitch
from enforce.test_openflow_fake_contract import FakeBench

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.spread import OUTSIDE_PORT
from orchestrator.compile.spreadprogram import Spread
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, TCP, UDP
from orchestrator.program.program import Tier

pytestmark = pytest.mark.system


class RealBench:
    def __init__(self, switch: RealSwitch, driver: type[OpenFlowDriver], tier: Tier = Tier.HOST) -> None:
        self.switch = switch
        self._link, self._other = switch.connect(), switch.connect()
        self.stranger = self._other.channel
        self.driver = driver(self._link.channel, uplink="wan0", tier=tier)
        self.epoch = next(switch.epochs)
        self.driver.start(self.epoch)
        self.settled = True
        """Whether the switch's cache is emptied before each frame."""

    def forward(self, frame: bytes, port: str) -> list[tuple[str, bytes]]:
        if self.settled:
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

    def test_a_connection_that_just_began_stays_where_it_is(self, bench: Bench) -> None:
        """Packets meet the cache as the packets before left it: nobody has looked it through since they passed, and
        nobody does when buckets have moved."""
        assert isinstance(bench, RealBench)
        old = spread("a", "b", stateful=True)
        self._hold(bench, old)
        begun = connections()[:40]
        bench.settled = False
        before = self._met(bench, map(begins, begun), "l")
        self._hold(bench, Spread((MEMBERS[0], draining("b")), fair("a", before=old.owners), stateful=True), 2)
        assert "b" in before
        assert self._met(bench, map(answer, begun), "r") == before
        assert self._met(bench, map(goes_on, begun), "l") == before
        assert set(self._met(bench, map(begins, connections()[40:]), "l")) == {"a"}

    def test_an_error_about_a_connection_meets_its_firewall(self, bench: Bench) -> None:
        """A router's word that a packet was too large, which nobody else would understand."""
        old = spread("a", "b", stateful=True)
        self._hold(bench, old)
        begun = connections()[:20]
        before = self._met(bench, map(begins, begun), "l")
        self._met(bench, map(answer, map(begins, begun)), "r")
        self._hold(bench, Spread((MEMBERS[0], draining("b")), fair("a", before=old.owners), stateful=True), 2)
        met = [bench.forward(too_large(answer(packet)), OUTSIDE_PORT)[0][0].removeprefix("l") for packet in begun]
        assert met == before
        assert set(met) == {"a", "b"}


def too_large(packet: Packet) -> bytes:
    """What a router says of an IPv4 packet that it could not pass on, to who sent it."""
    quoted = frames.frame(packet, src_mac=0, dst_mac=0)[14:][:28]
    told = frames.icmp(3, 4, struct.pack("!HH", 0, 1200) + quoted)
    return frames.ethernet(1, GATEWAY_MAC, frames.IPV4, frames.ipv4(0xC0000201, packet.source, ICMP, told))

"""What a spreading switch finds down, on its way from the switch to the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enforce.launched import HOME, Observer
from enforce.test_impostors import QUIET
from patience import until

from orchestrator.client import Host
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.launcher import Launcher
from orchestrator.enforce.fleet import Fleet
from orchestrator.enforce.links import AGAIN_S, Links
from orchestrator.errors import Unreachable


class Sink:
    """A service that takes reports, or does not."""

    def __init__(self) -> None:
        self.told: list[frozenset[str]] = []
        self.failures: list[Exception] = []

    def report_links(self, domain: str, enforcer: int, down: frozenset[str]) -> None:
        assert (domain, enforcer) == ("pop1", 3)
        if self.failures:
            raise self.failures.pop(0)
        self.told.append(down)


class Bench:
    def __init__(self) -> None:
        self.now_s, self.sink = 0.0, Sink()
        self.links = Links(self.sink, "pop1", 3, lambda: None, clock=lambda: self.now_s)

    def look(self, after_s: float = 0.0) -> list[frozenset[str]]:
        self.now_s += after_s
        self.links.report_due()
        return self.sink.told


@pytest.fixture
def bench() -> Bench:
    return Bench()


NONE, LEFT = frozenset[str](), frozenset({"l1"})


def test_nothing_is_told_of_a_switch_that_never_came(bench: Bench) -> None:
    assert bench.look(AGAIN_S) == []


def test_what_is_down_is_told_when_it_changes_and_now_and_then(bench: Bench) -> None:
    bench.links.note(NONE)
    assert bench.look() == [NONE]
    assert bench.look(AGAIN_S / 2) == [NONE]
    bench.links.note(LEFT)
    assert bench.look() == [NONE, LEFT]
    assert bench.look(AGAIN_S) == [NONE, LEFT, LEFT]


def test_what_the_service_did_not_take_is_told_again(bench: Bench) -> None:
    bench.links.note(LEFT)
    bench.sink.failures.append(Unreachable("away"))
    with pytest.raises(Unreachable):
        bench.look()
    assert bench.look() == [LEFT]


class _Counting:
    def forget(self, host: str) -> None:
        """Nothing is counted."""


@pytest.fixture
def noted() -> list[frozenset[str]]:
    return []


@pytest.fixture
def fleet(noted: list[frozenset[str]]) -> Iterator[Fleet]:
    made = Fleet(lambda _: None, _Counting(), lambda: None, QUIET, note_links=noted.append)  # type: ignore[arg-type]
    made.set_hosts([Host("spread", 0x11, "up0")])
    yield made
    made.stop()


def test_a_switch_is_asked_when_it_comes_and_when_it_says_so(fleet: Fleet, noted: list[frozenset[str]]) -> None:
    channel = StreamChannel(0x11, {"l1": 1}, lambda _: None, down_ports=LEFT)
    fleet.switch_connected(channel)
    channel.set_down_ports(NONE)
    fleet.links_changed(channel)
    channel.close()
    assert noted == [LEFT, NONE]


def test_strangers_are_not_asked(fleet: Fleet, noted: list[frozenset[str]]) -> None:
    numbers = 0x12, 0x11, 0x11  # nobody's, the switch, and another connection with its number
    channels = [StreamChannel(each, {}, lambda _: None, down_ports=frozenset({f"{each}"})) for each in numbers]
    for channel in channels:
        fleet.switch_connected(channel)
        fleet.links_changed(channel)
    for channel in channels:
        channel.close()
    assert noted == [frozenset({"17"})] * 2


def test_a_port_that_nobody_answers_behind_is_told(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    switch.down_ports = frozenset({"p2"})
    link = TcpLink(switch, (HOME, launcher.port))
    channel = observer.wait("connected")
    assert channel.down_ports == {"p2"}
    for _ in range(2):
        switch.set_down_ports({"p1"})
        until(lambda: channel.down_ports == {"p1"})
    link.close()
    until(lambda: observer.events[-1][0] == "disconnected")
    told = [name for name, _ in observer.events[1:-1]]
    assert 1 <= len(told) <= 2, "each port's state comes by itself; both may be there when the first one is looked at"
    assert {*told} == {"links_changed"}

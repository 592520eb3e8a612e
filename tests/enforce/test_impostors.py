"""Connections as a host's switch that were not given its place: which of them the service is told, and when."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from enforce.launched import HOME
from patience import until
from served import served

from orchestrator.client import Host
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.launcher import PATIENCE_S, Launcher, Listen
from orchestrator.enforce.fleet import Fleet
from orchestrator.enforce.impostors import AGAIN_S, LIVES_ON_S, MOST_OF_A_HOST, Impostors, ImpostorSink
from orchestrator.enforce.standing import Timing
from orchestrator.errors import Unreachable
from orchestrator.wire.points import MOST_IMPOSTORS, Impostor

HOSTS = (Host("host1", 0x11, "up0"),)
QUIET = Timing(observe_every_s=3600, count_every_s=3600, absent_after_s=3600)
SWITCH, STRANGER = "192.0.2.5", "192.0.2.9"


class _Counting:
    def forget(self, host: str) -> None:
        """Nothing is counted."""


class Sink:
    """A service that takes reports, or does not."""

    def __init__(self) -> None:
        self.told: list[Impostor] = []
        self.failures: list[Exception] = []

    def report_impostors(self, domain: str, enforcer: int, impostors: Sequence[Impostor]) -> None:
        assert (domain, enforcer) == ("pop1", 3)
        if self.failures:
            raise self.failures.pop(0)
        self.told += impostors


class Bench:
    """A fleet of one host, what it noted, and a clock."""

    def __init__(self, sink: ImpostorSink, enforcer: int = 3, hosts: Sequence[Host] = HOSTS) -> None:
        self.now_s = 0.0
        self.impostors = Impostors(sink, "pop1", enforcer, lambda: None, clock=lambda: self.now_s)
        self.fleet = Fleet(lambda _: None, _Counting(), lambda: None, QUIET, note_impostor=self.impostors.note)  # type: ignore[arg-type]
        self.fleet.set_hosts(hosts)

    def connect(self, address: str, *certificate: str, datapath_id: int = 0x11) -> StreamChannel:
        named = frozenset(certificate) if certificate else None
        channel = StreamChannel(datapath_id, {}, lambda _: None, hosts=named, address=address)
        self.fleet.switch_connected(channel)
        return channel

    def leave(self, channel: StreamChannel) -> None:
        channel.close()
        self.fleet.switch_disconnected(channel)

    def look(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.impostors.report_due()


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def bench(sink: Sink) -> Iterator[Bench]:
    bench = Bench(sink)
    yield bench
    bench.fleet.stop()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_second_connection_is_told_once_the_first_has_outlived_it(bench: Bench, sink: Sink, leaves: bool) -> None:
    bench.connect(SWITCH)
    second = bench.connect(STRANGER)
    if leaves:
        bench.leave(second)
    bench.look(LIVES_ON_S - 1)
    assert sink.told == []
    bench.look(1)
    assert sink.told == [Impostor("host1", STRANGER, SWITCH)]


def test_a_switch_that_comes_back_is_no_impostor_of_itself(bench: Bench, sink: Sink) -> None:
    """Its old connection ends before it is told: the watchdog of connections has less patience."""
    assert PATIENCE_S < LIVES_ON_S / 2
    first, second = bench.connect(SWITCH), bench.connect(SWITCH)
    bench.leave(first)
    bench.look(LIVES_ON_S)
    assert sink.told == []
    third = bench.connect(STRANGER)
    bench.look(LIVES_ON_S)
    assert bench.fleet.devices[0x11].channel is second
    assert sink.told == [Impostor("host1", STRANGER, SWITCH)]
    assert not third.closed


def test_another_hosts_certificate_is_told_at_once(bench: Bench, sink: Sink) -> None:
    bench.connect(STRANGER, "host3", "host2")
    bench.look()
    assert sink.told == [Impostor("host1", STRANGER, None, ("host2", "host3"))]


@pytest.mark.parametrize("certificate", [(), ("host1",)])
def test_those_that_stay_are_told_again(bench: Bench, sink: Sink, certificate: tuple[str, ...]) -> None:
    bench.connect(SWITCH, *certificate)
    second = bench.connect(STRANGER, *certificate)
    bench.look(LIVES_ON_S)
    bench.look(AGAIN_S - 1)
    assert len(sink.told) == 1
    bench.look(1)
    assert sink.told == [Impostor("host1", STRANGER, SWITCH, certificate)] * 2
    bench.leave(second)
    bench.look(AGAIN_S)
    assert len(sink.told) == 2


def test_one_that_comes_again_and_again_does_not_put_it_off(bench: Bench, sink: Sink) -> None:
    bench.connect(SWITCH)
    for _ in range(int(LIVES_ON_S)):
        bench.leave(bench.connect(STRANGER))
        bench.look(1)
    assert sink.told == [Impostor("host1", STRANGER, SWITCH)]


def test_what_could_not_be_told_is_told_later(bench: Bench, sink: Sink) -> None:
    sink.failures = [Unreachable("away")]
    bench.leave(bench.connect(STRANGER, "host2"))
    with pytest.raises(Unreachable):
        bench.look()
    bench.look()
    bench.look()
    assert sink.told == [Impostor("host1", STRANGER, None, ("host2",))]


def test_one_that_comes_by_two_certificates_in_turn_does_not_put_it_off(bench: Bench, sink: Sink) -> None:
    """Under one of them it is another host, under the other one a second connection of this one."""
    bench.connect(SWITCH, "host1")
    for _ in range(3):
        for certificate in ("host2", "host1"):
            bench.leave(bench.connect(STRANGER, certificate))
        bench.look(1)
    assert {each.address for each in sink.told} == {STRANGER}


def test_impostors_of_one_host_leave_room_for_those_of_others(bench: Bench, sink: Sink) -> None:
    bench.fleet.set_hosts((*HOSTS, Host("host9", 0x99, "up0")))
    for number in range(2 * MOST_IMPOSTORS):
        bench.leave(bench.connect(f"2001:db8::{number:x}", "host2"))
    bench.leave(bench.connect(STRANGER, "host2", datapath_id=0x99))
    bench.look()
    assert [each.host for each in sink.told] == ["host1"] * MOST_OF_A_HOST + ["host9"]


def test_what_is_kept_has_an_end(bench: Bench, sink: Sink) -> None:
    stranger = bench.connect(STRANGER, "host2")
    for number in range(2 * MOST_IMPOSTORS):
        bench.impostors.note(f"h{number}", stranger, None)
    bench.look()
    assert len(sink.told) == MOST_IMPOSTORS


def test_one_that_waited_before_its_host_was_known_is_told(bench: Bench, sink: Sink) -> None:
    bench.fleet.set_hosts(())
    first = bench.connect(SWITCH)
    bench.connect(STRANGER)
    bench.look(LIVES_ON_S)
    assert sink.told == []
    bench.fleet.set_hosts(HOSTS)
    bench.look(LIVES_ON_S)
    assert bench.fleet.devices[0x11].channel is first
    assert sink.told == [Impostor("host1", STRANGER, SWITCH)]


def test_a_second_switch_of_a_datapath_id_is_an_event(tmp_path: Path, switch: FakeSwitch) -> None:
    """Over real connections to a controller's port, and to a service."""
    with contextlib.ExitStack() as held:
        service = held.enter_context(served(tmp_path))
        admin = held.enter_context(service.client())
        admin.domains.create("pop1")
        admin.domains.add_host("pop1", Host("host1", switch.datapath_id, "p2"))
        joined = admin.enrolment.enrol(admin.enrolment.invite("pop1"), name="c1", kind="openflow")
        bench = Bench(held.enter_context(service.client(joined.token)).points, joined.enforcer)
        held.callback(bench.fleet.stop)
        launcher = Launcher(Listen(HOME, 0), bench.fleet)
        launcher.start()
        held.callback(launcher.stop)
        held.callback(TcpLink(switch, (HOME, launcher.port)).close)
        until(lambda: bool(bench.fleet.devices))
        stranger = FakeSwitch({"p1": 1, "p2": 2}, datapath_id=switch.datapath_id)
        link = TcpLink(stranger, (HOME, launcher.port))
        held.callback(link.close)

        def told() -> list[tuple[str, dict[str, object]]]:
            bench.look(LIVES_ON_S)
            events = [each for each in admin.events.read_newest().items if each.kind == "host.impersonated"]
            return [(each.subject, dict(each.detail)) for each in events]

        until(told)
        assert told() == [("pop1", {"host": "host1", "address": HOME, "holder": HOME})]
        assert link.is_open
        assert list(stranger.entries()) == []

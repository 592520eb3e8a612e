"""A classifier in user space under changes and faults, its queues in memory: nothing passes that no list permits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from enforce.contract_filters import POLICIES, assert_decides, bring, corner_packets, policy, program
from enforce.test_queue_fake_contract import QueueBench
from models_world import pocl
from patience import PATIENCE_S, until

from orchestrator.classify.columns import I32
from orchestrator.classify.devices import guarded
from orchestrator.classify.devices.devicesearch import DeviceSearch
from orchestrator.classify.devices.guarded import OnDevice, Patience
from orchestrator.classify.overlay import MakeSearch, Placed
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.classify.search import Search
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.filterlists import Stage
from orchestrator.compile.filters.queuerows import QueueRow
from orchestrator.enforce.agent import close_if_bare
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.queue import engine, lists
from orchestrator.enforce.drivers.queue.engine import Engine, Reports, Setup
from orchestrator.enforce.drivers.queue.lists import Judged, Lists
from orchestrator.enforce.drivers.queue.machine import Batch, Batching
from orchestrator.enforce.drivers.queue.tool import Led, queue_driver
from orchestrator.errors import Missing, Refused, TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.space import Box
from orchestrator.program.program import Tier

WHOLE = POLICIES["whole"]
PACKETS = corner_packets()
PERMITTED = [packet for packet in PACKETS if decide(WHOLE, packet).permitted]
DENIED = [packet for packet in PACKETS if not decide(WHOLE, packet).permitted]
STAMP = Stamp(1, bytes(16))
SHORT = Patience(answer_s=0.2, build_s=5.0)


@contextmanager
def queued(setup: Setup = Setup()) -> Iterator[QueueBench]:  # noqa: B008
    """A machine with a driver that holds the whole policy."""
    bench = QueueBench(setup)
    try:
        bring(bench, program(bench, WHOLE))
        yield bench
    finally:
        bench.driver.stop()


class Gate:
    """Holds batches back while it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self.opened.set()
        judge = Lists.judge

        def held(these: Lists, packets: Packets) -> Judged:
            found = judge(these, packets)
            self.reached.set()
            self.opened.wait(10)
            return found

        monkeypatch.setattr(Lists, "judge", held)


# ------------------------------------------------------------------------------------------------------------ changes


def change_under_way(bench: QueueBench, gate: Gate) -> bool:
    """Whether a change returns while a batch is judged by the lists before it."""
    gate.opened.clear()
    sent = bench.machine.send(PERMITTED[0])
    assert gate.reached.wait(10)
    changing = threading.Thread(target=bring, args=(bench, program(bench, Policy(), 8)))
    changing.start()
    changing.join(0.3)
    returned = not changing.is_alive()
    gate.opened.set()
    changing.join()
    assert bench.machine.has_passed(sent)  # it was judged by the lists that it began with
    return returned


def test_a_change_returns_when_no_batch_is_of_the_lists_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with queued() as bench:
        assert not change_under_way(bench, gate)
        assert not any(bench.machine.forward(PACKETS))


def test_a_planted_stale_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_judging_since", lambda _: 1 << 60)
    gate = Gate(monkeypatch)
    with queued() as bench:
        assert change_under_way(bench, gate)


def test_lists_that_were_built_behind_hide_no_batch_of_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch begins, the same lists are built anew, and then they change: the batch is of the old ones still."""
    monkeypatch.setattr(engine, "_SETTLE_S", 0.0)
    gate = Gate(monkeypatch)
    with queued() as bench:
        before = bench.driver.engine.lists
        until(lambda: bench.driver.is_built)
        assert bench.driver.engine.lists.serial == before.serial
        assert not change_under_way(bench, gate)


def test_packets_are_judged_by_the_old_lists_or_the_new_while_they_take_turns() -> None:
    """No packet that both deny passes, none that both permit is lost, and each is counted once."""
    other = POLICIES["without a rule"]
    both = [packet for packet in PERMITTED if decide(other, packet).permitted]
    neither = [packet for packet in DENIED if not decide(other, packet).permitted]
    with queued() as bench:
        programs = program(bench, other, 8), program(bench, WHOLE, 9)
        done = threading.Event()
        counted = {True: 0, False: 0}
        wrong: list[str] = []

        def fire() -> None:
            while not done.is_set():
                for packets, passes in ((both, True), (neither, False)):
                    came = bench.machine.forward(packets)
                    counted[passes] += len(packets)
                    if came != [passes] * len(packets):
                        wrong.append(f"{came.count(not passes)} of {len(packets)} packets were not judged as {passes}")

        firing = threading.Thread(target=fire)
        firing.start()
        for turn in range(20):
            bring(bench, programs[turn % 2])
        done.set()
        firing.join()
        assert not wrong
        assert sum(counted.values()) > 0


def test_rows_are_built_anew_behind_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SETTLE_S", 0.0)
    with queued() as bench:
        until(lambda: bench.driver.is_built)
        assert_decides(bench, WHOLE, PACKETS)


def test_counts_go_on_when_rules_go_and_come() -> None:
    with queued() as bench:
        bench.machine.forward(PACKETS)
        before = dict(zip(*counts(bench), strict=True))
        bring(bench, program(bench, Policy(), 8))
        bring(bench, program(bench, WHOLE, 9))
        bench.machine.forward(PACKETS)
        after = dict(zip(*counts(bench), strict=True))
        assert after == {key: 2 * count for key, count in before.items()}


def counts(bench: QueueBench) -> tuple[list[int], list[int]]:
    hits = bench.driver.hits()
    return hits.key.tolist(), hits.packets.tolist()


# -------------------------------------------------------------------------------------------------------------- ends


def test_a_restart_begins_closed() -> None:
    with queued() as bench:
        assert any(bench.machine.forward(PACKETS))
        bench.driver.stop()
        assert not any(bench.machine.forward(PACKETS))  # the kernel still leads to queues, and nobody listens
        bench.driver = queue_driver(Setup(), Led(), machine=bench.machine)
        assert bench.driver.observe().stamp is None
        assert not any(bench.machine.forward(PACKETS))  # somebody listens, and has no rows
        close_if_bare(bench.driver, "pop1")
        assert not any(bench.machine.forward(PACKETS))
        bring(bench, program(bench, WHOLE))
        assert_decides(bench, WHOLE, PACKETS)


def test_a_queue_that_somebody_else_has_is_missing() -> None:
    with queued() as bench:
        with pytest.raises(Missing, match="somebody else"):
            queue_driver(Setup(queues=(5, 1)), Led(), machine=bench.machine)
        assert not bench.machine.is_heard(5)  # all queues or none


def test_a_queue_that_goes_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_OPEN_AGAIN_S", 0.01)
    with queued(Setup(queues=(4,))) as bench:
        broken = bench.machine.queues[4]
        broken.broken = True
        until(lambda: bench.machine.is_heard(4) and bench.machine.queues[4] is not broken)
        assert_decides(bench, WHOLE, PACKETS)
        until(lambda: bench.driver.trouble() is None)


def test_while_a_queue_is_gone_the_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_OPEN_AGAIN_S", 0.01)
    with queued(Setup(queues=(4,))) as bench:
        opening = bench.machine.open

        def taken(queue: int, batching: Batching) -> Any:
            raise Missing(f"NFQUEUE {queue}: taken")

        monkeypatch.setattr(bench.machine, "open", taken)
        bench.machine.queues[4].broken = True
        until(lambda: "taken" in (bench.driver.trouble() or ""))
        assert not any(bench.machine.forward(PACKETS))
        held = bench.driver.observe()
        assert any(row.match == b"FORWARD" and b"NFQUEUE" in row.instructions for row in held.flows.rows())
        monkeypatch.setattr(bench.machine, "open", opening)
        until(lambda: bench.driver.trouble() is None)
        assert_decides(bench, WHOLE, PACKETS)


# ---------------------------------------------------------------------------------------------------------- overload


def test_overload_drops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with queued(Setup(queues=(0,), batching=Batching(most=4, waiting=8))) as bench:
        assert bench.driver.trouble() is None
        gate.opened.clear()
        sent = [bench.machine.send(packet) for packet in (PERMITTED * 9)[:100]]
        gate.opened.set()
        passed = sum(map(bench.machine.has_passed, sent))
        assert 8 <= passed < 100
        assert f"{100 - passed} packets were dropped" in str(bench.driver.trouble())
        assert_decides(bench, WHOLE, PACKETS[:8])


def test_a_batch_that_cannot_be_judged_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with queued() as bench:
        judge, failing = Lists.judge, threading.Event()
        failing.set()

        def judged(these: Lists, packets: Packets) -> Judged:
            if failing.is_set():
                raise MemoryError
            return judge(these, packets)

        monkeypatch.setattr(Lists, "judge", judged)
        assert not any(bench.machine.forward(PACKETS))
        failing.clear()
        assert_decides(bench, WHOLE, PACKETS)


def test_no_rules_at_all_forward_nothing() -> None:
    with queued() as bench:
        bring(bench, program(bench, policy((), (), ()), 8))
        assert_decides(bench, policy((), (), ()), PACKETS)
        bring(bench, program(bench, Policy(), 9))
        assert not any(bench.machine.forward(PACKETS))


def test_permitted_packets_go_on_to_another_queue() -> None:
    with queued(Setup(queues=(0,), next_queue=9)) as bench:
        assert not any(bench.machine.forward(PACKETS))  # nobody listens there
        second = queue_driver(Setup(queues=(9,)), Led(), machine=bench.machine)
        second.engine.put(bench.driver.engine.lists.rebuilt())
        assert_decides(bench, WHOLE, PACKETS)
        second.stop()


# ----------------------------------------------------------------------------------------------------------- reports


def test_rules_that_log_report_their_packets_within_the_tenants_measure() -> None:
    told: list[tuple[int, Packet, int]] = []
    with queued() as bench:
        bench.driver.report_to(lambda *seen: told.append(seen))
        bench.machine.forward(PACKETS)
        logging = {1, 5}  # the numbers of the shop's rules "bad" and "dns"
        wanted = {(Cookie(Tier.SERVER, Kind.RULE, number).pack(), packet) for number in logging for packet in PACKETS}
        assert told
        assert {(cookie, packet) for cookie, packet, _ in told} <= wanted
        assert all(octets == 100 for *_, octets in told)
        dns = next(packet for _, packet, _ in told if packet.destination_port == 53)
        told.clear()
        bench.machine.forward([dns] * 500)
        assert WHOLE.log_limit.burst >= len(told)  # what the measure has left, and no more than a burst


def test_a_measure_fills_with_time() -> None:
    now, told = [0.0], []
    reports = Reports(lambda: now[0])
    reports.seen = lambda *seen: told.append(seen)
    logging = Lists.empty().exchange_rows(
        {}, {0: QueueRow(Stage.INGRESS, 1, 0, True, Box(Family.IPV4), "rule 7", LogLimit(2, 3))}, 1, STAMP
    )
    packets = np.array([record(PACKETS[0])] * 5, PACKET)
    batch = Batch(np.arange(5, dtype=np.uint32), packets)
    for after_s, wanted in ((0.0, 3), (0.0, 0), (0.5, 1), (60.0, 3)):
        now[0] += after_s
        told.clear()
        reports.report(logging, logging.judge(packets), batch)
        assert len(told) == wanted


def test_a_report_that_fails_stops_nothing() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    with queued() as bench:
        bench.driver.report_to(fail)
        assert_decides(bench, WHOLE, PACKETS)
        assert_decides(bench, WHOLE, PACKETS)


# ----------------------------------------------------------------------------------------------------------- devices


class FakeSearch:
    """Rows on a device that works by C, until it is made to fail."""

    fault: Callable[[], None] = staticmethod(lambda: None)
    building: Callable[[], None] = staticmethod(lambda: None)
    asked = 0

    def __init__(self, device: Any, family: Family, boxes: Sequence[Box], setup: Any) -> None:
        type(self).building()
        self._in_c = Search(family, boxes)

    def first(self, packets: Packets) -> I32:
        type(self).asked += 1
        type(self).fault()
        return self._in_c.first(packets)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[FakeSearch]:
    fresh = type("Fresh", (FakeSearch,), {})
    monkeypatch.setattr(guarded, "DeviceSearch", fresh)
    monkeypatch.setattr(engine, "_SETTLE_S", 0.0)
    return fresh


@contextmanager
def on_device(searching: MakeSearch | None = None) -> Iterator[QueueBench]:
    setup = Setup(searching=searching or OnDevice(None, SHORT).search)  # type: ignore[arg-type]
    with queued(setup) as bench:
        until(lambda: bench.driver.is_built)
        yield bench


def test_packets_are_judged_on_the_device(device: type[FakeSearch]) -> None:
    with on_device() as bench:
        before = device.asked
        assert_decides(bench, WHOLE, PACKETS)
        assert device.asked > before
        assert bench.driver.trouble() is None


def test_c_takes_over_within_a_second_from_a_device_that_hangs(device: type[FakeSearch]) -> None:
    release = threading.Event()
    with on_device() as bench:
        device.fault = staticmethod(lambda: release.wait(PATIENCE_S) and None)
        began = time.monotonic()
        assert_decides(bench, WHOLE, PACKETS)
        assert time.monotonic() - began < PATIENCE_S / 2, "the device was waited for"
        assert "did not answer within 0.2 s" in str(bench.driver.trouble())
        asked = device.asked
        bring(bench, program(bench, POLICIES["without a rule"], 8))
        assert_decides(bench, POLICIES["without a rule"], PACKETS)
        until(lambda: bench.driver.is_built)
        assert device.asked == asked  # it is never asked again
    release.set()


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return staticmethod(fail)


def test_a_device_lost_in_the_middle_of_a_batch(device: type[FakeSearch]) -> None:
    with on_device() as bench:
        device.fault = raising(Refused("the device is lost"))
        assert_decides(bench, WHOLE, PACKETS)
        assert "the device is lost" in str(bench.driver.trouble())


@pytest.mark.parametrize(
    "error",
    [Refused("does not compile the models"), TooLarge("1,024 bytes fit"), TooLarge("ALLOCATION_FAILURE")],
    ids=["a kernel that does not compile", "rules larger than the device", "a driver that lies about memory"],
)
def test_devices_that_cannot_be_used(device: type[FakeSearch], error: Exception) -> None:
    device.building = raising(error)
    with on_device() as bench:
        assert_decides(bench, WHOLE, PACKETS)
        assert str(error) in str(bench.driver.trouble())


def test_a_device_that_finds_other_rows_is_not_believed(
    device: type[FakeSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "first", lambda self, packets: self._in_c.first(packets) ^ 1)
    with on_device() as bench:
        assert_decides(bench, WHOLE, PACKETS)
        assert "the device finds row" in str(bench.driver.trouble())


def test_a_device_that_hangs_while_it_takes_rows(device: type[FakeSearch]) -> None:
    release = threading.Event()
    device.building = staticmethod(lambda: release.wait(60) and None)
    hasty = OnDevice(None, Patience(answer_s=0.2, build_s=0.2))  # type: ignore[arg-type]
    with queued(Setup(searching=hasty.search)) as bench:
        assert_decides(bench, WHOLE, PACKETS)
        until(lambda: "did not take rows" in str(bench.driver.trouble()))
        assert_decides(bench, WHOLE, PACKETS)
    release.set()


def test_a_device_of_opencl_judges_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "DeviceSearch", DeviceSearch)
    with queued(Setup(searching=OnDevice(pocl(), Patience(answer_s=30.0)).search)) as bench:
        until(lambda: bench.driver.is_built, 120)
        assert bench.driver.trouble() is None
        assert_decides(bench, WHOLE, PACKETS)


# ------------------------------------------------------------------------------------------------------ planted bugs


def _any_match(these: Lists, packets: Packets, family: Family) -> Any:
    """The last row that holds a packet decides."""
    reversed_rows = {
        place: rows.exchange_rows((), [Placed((1 << 31) - 1 - row.order, row.number, row.box) for row in rows.rows()])
        for place, rows in these.rows.items()
    }
    return _judge(lists.Lists(reversed_rows, these.permits, these.stamp), packets, family)


def _receivers_first(these: Lists, packets: Packets, family: Family) -> Any:
    """What the sender's list denies is put to the receiver's all the same."""
    every = these.permits.copy()
    every[:-1] = True
    _, counted = _judge(lists.Lists(these.rows, every, these.stamp), packets, family)
    permitted, _ = _judge(these, packets, family)
    return permitted, counted


def _open_without_rows(these: Lists, packets: Packets, family: Family) -> Any:
    """A packet that no list is about passes."""
    permitted, counted = _judge(these, packets, family)
    found = {int(packet) for _, which in counted for packet in which}
    for packet in range(len(packets)):
        permitted[packet] |= packet not in found
    return permitted, counted


_judge = Lists.judge_family


@pytest.mark.parametrize("bug", [_any_match, _receivers_first, _open_without_rows], ids=lambda bug: bug.__name__)
def test_planted_bugs_are_noticed(monkeypatch: pytest.MonkeyPatch, bug: Callable[..., Any]) -> None:
    with queued() as bench:
        assert_judged(bench)
    monkeypatch.setattr(Lists, "judge_family", bug)
    with queued() as bench, pytest.raises(AssertionError):
        assert_judged(bench)


def assert_judged(bench: QueueBench) -> None:
    """Verdicts are the oracle's, also for strangers, and so is how many lists counted packets."""
    strangers = [Packet(Family.IPV4, 1 << 24, 2 << 24, 6, 1, 80), Packet(Family.IPV6, 1, 2, 6, 1, 80)]
    assert_decides(bench, WHOLE, [*PACKETS, *strangers])
    steps = sum(len(decide(WHOLE, packet).steps) for packet in PACKETS)
    assert bench.driver.hits().packets.sum() == steps

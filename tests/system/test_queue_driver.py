"""A classifier in user space over the kernel's own queues, with real packets: the contract, and faults."""

from __future__ import annotations

import ipaddress
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from enforce.contract_filters import POLICIES, Bench, assert_decides, bring, corner_packets, program
from enforce.queue_contract import QueueContract
from enforce.test_queue_engine import SHORT, FakeSearch
from patience import until
from system.queued import QueueBench, queue_bench
from system.test_agent import LESS, Vnf, eventually, log_names_the_rules, wrong

from orchestrator.classify.devices import guarded
from orchestrator.classify.devices.guarded import OnDevice
from orchestrator.classify.packets import Packets
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.legs import Legs
from orchestrator.enforce import gap
from orchestrator.enforce.agent import close_if_bare
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.queue.engine import Setup
from orchestrator.enforce.drivers.queue.lists import Judged, Lists
from orchestrator.enforce.drivers.queue.machine import Batching
from orchestrator.enforce.drivers.queue.tool import Hook, Led, QueueDriver, QueueTool
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import ROUTER, Router, RouterMachine, ethernet
from orchestrator.lab.wire import raw_socket
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.oracle import decide
from orchestrator.program.program import Tier
from orchestrator.wire.firewalls import Plane


def _number(address: str) -> int:
    return int(ipaddress.ip_address(address))


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


WHOLE = POLICIES["whole"]
SENDER, WEB = _number("192.0.2.5"), _number("198.51.100.10")
SENDER6, WEB6 = _number("2001:db8:ffff:1::5"), _number("2001:db8:100::10")
MALFORMED_TCP = b"\x9c\x40\x00\x50"
"""From port 40000 to port 80, which is permitted, were the rest of the header there."""


@pytest.fixture
def bench(layout: Layout) -> Iterator[QueueBench]:
    """A router that holds the whole policy."""
    with queue_bench(layout, Setup(queues=(0,))) as bench:
        bring(bench, program(bench, WHOLE))
        yield bench


def passing(bench: QueueBench, *crafts: Callable[[bytes], bytes]) -> list[bool]:
    """Which of some packets come through: each is made around a marker."""
    return bench.router.fire_frames([partial(_framed, craft) for craft in crafts])


def _framed(craft: Callable[[bytes], bytes], marker: bytes) -> bytes:
    packet = craft(marker)
    return ethernet(0x0800 if packet[0] >> 4 == 4 else 0x86DD, packet)


def tcp(port: int, marker: bytes) -> bytes:
    return frames.tcp(40_000, port, 0x02, marker, frames.pseudo_v4(SENDER, WEB))


def tcp6(port: int, marker: bytes) -> bytes:
    return frames.tcp(40_000, port, 0x02, marker, frames.pseudo_v6(SENDER6, WEB6))


SOL_PACKET, PACKET_VNET_HDR = 263, 15
MORE = 0x2000
"""More fragments follow."""


def test_fragments_and_packets_that_cannot_be_read(bench: QueueBench) -> None:
    """All that would be permitted if it were what it seems; what has no whole header is dropped, and said."""
    good = [
        lambda marker: frames.ipv4(SENDER, WEB, 6, tcp(80, marker)),
        lambda marker: frames.ipv4(SENDER, WEB, 6, tcp(80, marker), options=b"\x01" * 8),
        lambda marker: frames.ipv4(SENDER, WEB, 6, tcp(80, marker + bytes(6)), fragment=MORE),
        lambda marker: frames.ipv6(SENDER6, WEB6, 6, tcp6(80, marker)),
        lambda marker: frames.ipv6(SENDER6, WEB6, 60, frames.extension(6, 64) + tcp6(80, marker)),
        lambda marker: frames.ipv6(SENDER6, WEB6, 44, frames.fragment_header(6, 1) + tcp6(80, marker + bytes(6))),
    ]
    cut = [
        lambda marker: frames.ipv4(SENDER, WEB, 6, MALFORMED_TCP + marker[:14]),
        lambda marker: frames.ipv6(SENDER6, WEB6, 6, MALFORMED_TCP + marker[:14]),
        lambda marker: frames.ipv6(
            SENDER6,
            WEB6,
            60,
            frames.extension(60, 256) + frames.extension(60, 256) + frames.extension(6) + tcp6(80, marker),
        ),
    ]
    later = [
        lambda marker: frames.ipv4(SENDER, WEB, 6, tcp(80, marker), fragment=200),
        lambda marker: frames.ipv6(SENDER6, WEB6, 44, frames.fragment_header(6, 800) + tcp6(80, marker)),
    ]
    assert passing(bench, *good) == [True] * len(good)
    assert bench.driver.trouble() is None
    assert passing(bench, *cut) == [False] * len(cut)
    assert f"{len(cut)} packets could not be read" in str(bench.driver.trouble())
    whole = [
        Packet(Family.IPV4, SENDER, WEB, 6, later_fragment=True),
        Packet(Family.IPV6, SENDER6, WEB6, 44, later_fragment=True),
    ]
    assert passing(bench, *later) == [decide(WHOLE, packet).permitted for packet in whole]
    bring(bench, program(bench, POLICIES["whole"], 8))
    assert passing(bench, *good, *cut) == [True] * len(good) + [False] * len(cut)


def test_lists_take_turns_and_no_packet_is_judged_by_neither(bench: QueueBench) -> None:
    """What both deny never passes, what both permit is never lost, and all of it is counted."""
    other = POLICIES["without a rule"]
    programs = program(bench, other, 8), program(bench, WHOLE, 9)
    both = [packet for packet in bench.packets if all(decide(each, packet).permitted for each in (WHOLE, other))][:8]
    neither = [
        packet for packet in bench.packets if not any(decide(each, packet).permitted for each in (WHOLE, other))
    ][:8]
    assert both
    assert neither
    done = threading.Event()
    came: list[list[bool]] = []

    def fire() -> None:
        while not done.is_set():
            came.append(bench.forward((both + neither) * 4))

    before = int(bench.driver.hits().packets.sum())
    firing = threading.Thread(target=fire)
    firing.start()
    for turn in range(20):
        bring(bench, programs[turn % 2])
    done.set()
    firing.join()
    assert came == [[*[True] * len(both), *[False] * len(neither)] * 4] * len(came)
    counted = int(bench.driver.hits().packets.sum()) - before
    assert counted >= len(came) * 4 * len(both)


def test_overload_drops_and_says_so(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()
    judge = Lists.judge

    def slow(these: Lists, packets: Packets) -> Judged:
        opened.wait(30)
        return judge(these, packets)

    packet = Packet(Family.IPV4, SENDER, WEB, 6, 40_000, 80)
    with queue_bench(layout, Setup(queues=(0,), batching=Batching(most=4, waiting=8))) as bench:
        bring(bench, program(bench, WHOLE))
        assert all(bench.forward([packet] * 4))
        monkeypatch.setattr(Lists, "judge", slow)
        before = _web(bench)[0]
        assert not any(bench.forward([packet] * 200))
        opened.set()
        until(lambda: bench.driver.trouble() is not None)
        until(lambda: all(bench.forward([packet])))  # those that wait are judged first
        assert 8 < _web(bench)[0] - before < 200
        assert "packets were dropped: more came than are judged" in str(bench.driver.trouble())
        assert all(bench.forward([packet] * 4))


def test_a_restart_begins_closed(layout: Layout) -> None:
    with queue_bench(layout) as bench:
        bring(bench, program(bench, WHOLE))
        assert any(bench.forward(bench.packets))
        bench.tool.engine.stop()
        assert not any(bench.forward(bench.packets))
        bench.tool = QueueTool(bench.machine, Setup(), Led(), "legacy")
        bench.driver = QueueDriver(bench.tool)
        assert not any(bench.forward(bench.packets))
        close_if_bare(bench.driver, "pop1")
        assert not any(bench.forward(bench.packets))
        bring(bench, program(bench, WHOLE))
        assert_decides(bench, WHOLE, bench.packets)


def test_c_takes_over_from_a_device_that_hangs(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real packets wait for the device no longer than a second, and none that is denied passes meanwhile."""
    fake = type("Hanging", (FakeSearch,), {})
    monkeypatch.setattr(guarded, "DeviceSearch", fake)
    release = threading.Event()
    searching = OnDevice(None, SHORT).search  # type: ignore[arg-type]
    permitted, denied = (
        Packet(Family.IPV4, SENDER, WEB, 6, 40_000, 80),
        Packet(Family.IPV4, SENDER, WEB, 17, 40_000, 80),
    )
    with queue_bench(layout, Setup(searching=searching)) as bench:
        bring(bench, program(bench, WHOLE))
        until(lambda: bench.driver.is_built)
        fake.fault = staticmethod(lambda: release.wait(60) and None)
        assert not any(bench.forward([denied] * 20))
        until(lambda: "did not answer within" in str(bench.driver.trouble()))
        assert bench.forward([permitted, denied] * 20) == [True, False] * 20
    release.set()


def test_segments_come_whole(bench: QueueBench) -> None:
    """A packet of 32 KB that a card would cut is one packet, with all of its bytes."""
    size = 32_000
    whole = frames.ipv4(SENDER, WEB, 6, tcp(80, bytes(size)))
    frame = ethernet(0x0800, whole)
    before = _web(bench)
    gso = struct.pack("=BBHHHH", 1, 1, 14 + 20 + 20, 1400, 34, 16)  # cut it as TCP over IPv4, checksum to be filled in
    left = bench.router.inside("left", raw_socket)
    with left:
        left.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        left.send(gso + frame)
    until(lambda: _web(bench) != before)
    packets, octets = (after - ago for after, ago in zip(_web(bench), before, strict=True))
    assert (packets, octets) == (1, len(whole))


def _web(bench: QueueBench) -> tuple[int, int]:
    """What the rule for the web has counted: packets and bytes."""
    hits = bench.driver.hits()
    mine = hits.cookie == Cookie(Tier.SERVER, Kind.RULE, 2).pack()
    return int(hits.packets[mine].sum()), int(hits.bytes[mine].sum())


def test_permitted_packets_go_on_to_another_queue(layout: Layout) -> None:
    with queue_bench(layout, Setup(queues=(0,), next_queue=9)) as bench:
        bring(bench, program(bench, WHOLE))
        assert not any(bench.forward(bench.packets))  # nobody listens there
        second = QueueTool(bench.machine, Setup(queues=(9,)), Led())
        second.engine.put(bench.tool.engine.lists.rebuilt())
        assert_decides(bench, WHOLE, bench.packets)
        second.engine.stop()


@pytest.mark.parametrize("hook", Hook)
def test_packets_to_and_from_the_machine_itself(layout: Layout, hook: Hook) -> None:
    with Router(layout.prefix) as router:
        router.run("ip", "address", "add", "198.51.100.10/32", "dev", "lo")
        machine = RouterMachine(router)
        tool = QueueTool(machine, Setup(), Led((hook,), ("left" if hook is Hook.INPUT else "right",)), "legacy")
        driver = QueueDriver(tool)
        try:
            close_if_bare(driver, "pop1")
            asked = Packet(Family.IPV4, SENDER, WEB, 6, 40_000, 80)
            bench = HookBench(driver, router)
            bring(bench, program(bench, WHOLE))
            assert "NFQUEUE" in router.run("iptables-legacy", "-S", hook.value)
            before = _web(bench)
            if hook is Hook.INPUT:
                router.fire([asked])
                until(lambda: _web(bench) != before)
            else:
                sender = router.inside(ROUTER, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                with sender:
                    sender.bind(("198.51.100.10", 5000))
                    with suppress(PermissionError):  # what the sender is told of a packet that is dropped
                        sender.sendto(b"mail", ("203.0.113.9", 53))
                until(lambda: int(driver.hits().packets.sum()) > 0)
            less = program(bench, POLICIES["without a rule"], 8)
            bring(bench, less)
            assert router.run("iptables-legacy", "-S", hook.value).count("NFQUEUE") == 1
            router.run("iptables-legacy", "-F", hook.value)
            found = driver.observe()
            assert gap.mismatch(found, driver.resolve(less.flows, ()), gap.stamp_of(less)) is not None
            bring(bench, less)
            assert router.run("iptables-legacy", "-S", hook.value).count("NFQUEUE") == 1
        finally:
            tool.engine.stop()


class HookBench:
    """As much of a bench as writing a program takes."""

    plane = Plane.QUEUE

    def __init__(self, driver: QueueDriver, router: Router) -> None:
        self.driver, self.router = driver, router
        self.packets: Sequence[Packet] = ()
        self.run = RouterMachine(router).run

    def forward(self, packets: Sequence[Packet]) -> list[bool]:
        return self.router.fire(packets)

    def declare(self, legs: Legs) -> None:
        raise NotImplementedError(legs)

    def fail(self, words: str) -> None:
        raise NotImplementedError(words)


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGKILL], ids=["asked to end", "killed"])
def test_the_life_of_an_agent(layout: Layout, tmp_path: Path, signal_: signal.Signals) -> None:
    """It enrols, enforces and counts; when it ends nothing is forwarded; it begins anew alone, with what it knew."""
    with Router(layout.prefix) as router:
        some = corner_packets()
        packets = [packet for packet, came in zip(some, router.fire(some), strict=True) if came]
        vnf = Vnf(router, tmp_path, "queue")
        try:
            vnf.inside(vnf.service.start)
            token = vnf.onboard()
            vnf.reboot()
            vnf.start_agent(token, "--queue-device", "c", "--queue-count", "2")
            vnf.enforced(vnf.ask(lambda client: client.domains.read("pop1").generation))
            assert wrong(vnf, WHOLE, packets) == []
            log_names_the_rules(vnf, packets)
            eventually(lambda: vnf.load().load is not None, vnf)
            vnf.enforced(vnf.ask(lambda client: vnf.put(client, LESS)))
            assert wrong(vnf, LESS, packets) == []
            vnf.end_agent(signal_)
            assert not any(router.fire(packets))
            vnf.service.kill()
            vnf.start_agent("", "--queue-device", "c")
            eventually(lambda: wrong(vnf, LESS, packets) == [], vnf)
        finally:
            vnf.close()

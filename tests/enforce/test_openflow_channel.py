"""A channel gives each exchange its own answers, in time, whatever else happens on the connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from patience import PATIENCE_S

from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import FIRST_XID, HEADER, LAST_XID, StreamChannel
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.errors import Unreachable


class Peer:
    """The other end: notes what was written, answers when told."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.on_write: Callable[[bytes], None] = lambda _: None
        self.channel = StreamChannel(0xAB, {"vm1": 1}, self._write)

    def _write(self, data: bytes) -> None:
        self.written.append(data)
        self.on_write(data)

    def answer(self, kind: Type, xid: int, body: bytes = b"") -> bool:
        return self.channel.deliver(messages.message(kind, xid, body))


def ask(channel: StreamChannel, xids: range, timeout_s: float = 5) -> list[int]:
    """An exchange of one request and its barrier; the types of the answers."""
    request = messages.get_config_request(xids[0]) + messages.barrier_request(xids[-1])
    return [raw[1] for raw in channel.exchange(request, xids, timeout_s=timeout_s)]


def test_answers_are_told_apart_by_their_numbers() -> None:
    peer = Peer()
    first, second = peer.channel.reserve(2), peer.channel.reserve(3)
    assert not set(first) & set(second)

    def answers(_: bytes) -> None:
        assert not peer.answer(Type.ERROR, 0)
        assert not peer.answer(Type.GET_CONFIG_REPLY, second[0])
        assert peer.answer(Type.GET_CONFIG_REPLY, first[0])
        assert peer.answer(Type.ERROR, first[0])
        assert peer.answer(Type.BARRIER_REPLY, first[1])

    peer.on_write = answers
    assert ask(peer.channel, first) == [Type.GET_CONFIG_REPLY, Type.ERROR, Type.BARRIER_REPLY]
    assert not peer.answer(Type.BARRIER_REPLY, first[1]), "nobody waits any more"


def test_parts_are_written_as_they_are_made() -> None:
    peer = Peer()
    xids = peer.channel.reserve(2)
    first, barrier = messages.get_config_request(xids[0]), messages.barrier_request(xids[1])

    def parts() -> Iterator[bytes]:
        yield first
        assert peer.written == [first]
        assert peer.answer(Type.GET_CONFIG_REPLY, xids[0])
        peer.on_write = lambda _: peer.answer(Type.BARRIER_REPLY, xids[1]) and None
        yield barrier

    answers = peer.channel.exchange_parts(parts(), xids, timeout_s=5)
    assert [raw[1] for raw in answers] == [Type.GET_CONFIG_REPLY, Type.BARRIER_REPLY]
    assert peer.written == [first, barrier]


def test_nobody_writes_between_the_parts_of_an_exchange() -> None:
    peer = Peer()
    xids, others = peer.channel.reserve(2), peer.channel.reserve(1)
    first, barrier, other = (*map(messages.barrier_request, xids), messages.barrier_request(others[0]))
    peer.on_write = lambda data: peer.answer(Type.BARRIER_REPLY, HEADER.unpack_from(data)[3]) and None
    meanwhile = threading.Thread(target=peer.channel.exchange, args=(other, others), kwargs={"timeout_s": PATIENCE_S})

    def parts() -> Iterator[bytes]:
        yield first
        meanwhile.start()
        meanwhile.join(0.1)
        yield barrier

    peer.channel.exchange_parts(parts(), xids, timeout_s=PATIENCE_S)
    meanwhile.join(PATIENCE_S)
    assert peer.written == [first, barrier, other]


def test_parts_that_cannot_be_made_end_the_exchange_and_nothing_else() -> None:
    peer = Peer()
    peer.on_write = lambda data: peer.answer(Type.BARRIER_REPLY, HEADER.unpack_from(data)[3]) and None
    first, second = peer.channel.reserve(2), peer.channel.reserve(1)

    def parts() -> Iterator[bytes]:
        yield messages.barrier_request(first[0])
        raise MemoryError

    with pytest.raises(MemoryError):
        peer.channel.exchange_parts(parts(), first, timeout_s=5)
    assert not peer.answer(Type.BARRIER_REPLY, first[1]), "nobody waits any more"
    peer.channel.exchange(messages.barrier_request(second[0]), second, timeout_s=5)
    peer.channel.close()
    with pytest.raises(Unreachable, match="closed"):
        peer.channel.exchange_parts(parts(), first, timeout_s=5)


def test_only_a_barriers_answer_or_its_refusal_ends_an_exchange() -> None:
    peer = Peer()
    xids = peer.channel.reserve(2)

    def answers(_: bytes) -> None:
        peer.answer(Type.ECHO_REPLY, xids[-1])
        peer.answer(Type.BARRIER_REPLY, xids[0])

    peer.on_write = answers
    with pytest.raises(Unreachable, match="did not answer within"):
        ask(peer.channel, xids, timeout_s=0.05)
    peer.on_write = lambda _: peer.answer(Type.ERROR, xids[-1]) and None
    assert ask(peer.channel, xids) == [Type.ERROR]


def test_a_late_answer_does_not_end_the_next_exchange() -> None:
    peer = Peer()
    first, second = peer.channel.reserve(2), peer.channel.reserve(2)
    with pytest.raises(Unreachable):
        ask(peer.channel, first, timeout_s=0.02)
    peer.on_write = lambda _: (peer.answer(Type.BARRIER_REPLY, first[1]), peer.answer(Type.BARRIER_REPLY, second[1]))
    assert ask(peer.channel, second) == [Type.BARRIER_REPLY]


def test_closing_wakes_whoever_waits_at_once() -> None:
    peer = Peer()
    threading.Timer(0.05, peer.channel.close).start()
    began = time.monotonic()
    with pytest.raises(Unreachable, match="closed"):
        ask(peer.channel, peer.channel.reserve(2), timeout_s=PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert peer.channel.closed
    with pytest.raises(Unreachable):
        ask(peer.channel, peer.channel.reserve(2))
    assert len(peer.written) == 1, "nothing is written to a closed channel"
    peer.channel.close()


def test_an_answer_that_came_just_before_the_end_counts() -> None:
    peer = Peer()
    xids = peer.channel.reserve(2)
    peer.on_write = lambda _: (peer.answer(Type.BARRIER_REPLY, xids[1]), peer.channel.close())
    assert ask(peer.channel, xids) == [Type.BARRIER_REPLY]


def test_a_broken_write_closes_the_channel() -> None:
    def broken(_: bytes) -> None:
        raise BrokenPipeError("gone")

    peer = Peer()
    peer.on_write = broken
    with pytest.raises(Unreachable, match="gone"):
        ask(peer.channel, peer.channel.reserve(2))
    assert peer.channel.closed


def test_exchanges_of_several_threads_do_not_mix() -> None:
    peer = Peer()

    def answers(data: bytes) -> None:
        first, last = (HEADER.unpack_from(data, at)[3] for at in (0, 8))
        peer.answer(Type.GET_CONFIG_REPLY, first, first.to_bytes(4, "big"))
        threading.Timer(0.001 * (last % 7), lambda: peer.answer(Type.BARRIER_REPLY, last)).start()

    peer.on_write = answers
    wrong: list[object] = []

    def many() -> None:
        for _ in range(30):
            xids = peer.channel.reserve(2)
            found = peer.channel.exchange(
                messages.get_config_request(xids[0]) + messages.barrier_request(xids[1]), xids, timeout_s=10
            )
            if [HEADER.unpack_from(raw)[3] for raw in found] != [xids[0], xids[1]]:
                wrong.append(found)

    threads = [threading.Thread(target=many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_numbers_start_again_before_they_run_out() -> None:
    channel = Peer().channel
    taken = [channel.reserve(1 << 28) for _ in range(9)]
    assert all(xids[0] >= FIRST_XID and xids[-1] < LAST_XID for xids in taken)
    assert all(before[-1] < after[0] or after[-1] < before[0] for before, after in pairwise(taken))


def test_ports_are_replaced_as_a_whole() -> None:
    channel = Peer().channel
    before = channel.ports
    channel.set_ports({"vm2": 7})
    assert (before, channel.ports, channel.datapath_id) == ({"vm1": 1}, {"vm2": 7}, 0xAB)


def test_a_silent_switch_is_unreachable_to_the_driver() -> None:
    driver = OpenFlowDriver(Peer().channel, uplink="wan0", timeout_s=0.02)
    for verb in (driver.observe, driver.hits, lambda: driver.start(1)):
        with pytest.raises(Unreachable):
            verb()

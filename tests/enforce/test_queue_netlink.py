"""What is read of the kernel's messages about queued packets, and what is answered, over a socket of our own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from orchestrator.enforce import _nfqueue
from orchestrator.enforce.drivers.nftables.netlink import attribute

PACKET, BATCH_VERDICT = 3 << 8, 3 << 8 | 3
PAYLOAD, HEAD, WHOLE_LENGTH = 10, 1, 13
DROP, ACCEPT = 0, 1
ROOM, SLOT = 8, 1024


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and the kernel's: one datagram is one message."""
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        yield ours, kernels


def message(number: int, payload: bytes | None, *more: bytes, kind: int = PACKET) -> bytes:
    """A packet as the kernel tells of it: IPv4, at the hook FORWARD."""
    said = attribute(HEAD, struct.pack("!IHB", number, 0x0800, 2)) + b"".join(more)
    if payload is not None:
        said += attribute(PAYLOAD, payload)
    body = struct.pack("!BBH", 2, 0, 7) + said
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


class Arrays:
    """What a batch is read into."""

    def __init__(self) -> None:
        self.data = np.zeros(ROOM * SLOT, np.uint8)
        self.ids, self.captured, self.wire, self.links = np.zeros((4, ROOM), np.uint32)
        self.starts = np.zeros(ROOM, np.int64)

    def receive(self, sock: socket.socket, patience_us: int = 1_000_000, latency_us: int = 0) -> tuple[int, int]:
        arrays = self.ids, self.starts, self.captured, self.wire, self.links
        return _nfqueue.receive(sock.fileno(), self.data, SLOT, *arrays, patience_us, latency_us)

    def payload(self, packet: int) -> bytes:
        start = int(self.starts[packet])
        return self.data[start : start + int(self.captured[packet])].tobytes()


def test_packets_that_wait_are_one_batch(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = ends
    for number, payload in enumerate((b"first", b"second one", b""), 1):
        kernels.send(message(number, payload))
    arrays = Arrays()
    assert arrays.receive(ours) == (3, 0)
    assert arrays.ids[:3].tolist() == [1, 2, 3]
    assert [arrays.payload(packet) for packet in range(3)] == [b"first", b"second one", b""]
    assert arrays.links[:3].tolist() == [228] * 3
    assert arrays.receive(ours, patience_us=1) == (0, 0)


def test_a_packet_that_was_copied_in_part_has_its_whole_length(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = ends
    kernels.send(message(1, b"x" * 512, attribute(WHOLE_LENGTH, struct.pack("!I", 60_000))))
    arrays = Arrays()
    assert arrays.receive(ours) == (1, 0)
    assert (int(arrays.captured[0]), int(arrays.wire[0])) == (512, 60_000)


def test_no_more_packets_are_taken_than_a_batch_has(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = ends
    for number in range(1, 12):
        kernels.send(message(number, b"x"))
    arrays = Arrays()
    assert arrays.receive(ours) == (ROOM, 0)
    assert arrays.receive(ours) == (3, 0)
    assert arrays.ids[:3].tolist() == [9, 10, 11]


def test_a_first_packet_waits_for_others_no_longer_than_told(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = ends
    kernels.send(message(1, b"x"))
    assert Arrays().receive(ours, latency_us=20_000) == (1, 0)
    for number in range(2, 2 + ROOM):
        kernels.send(message(number, b"x"))
    assert Arrays().receive(ours, latency_us=60_000_000) == (ROOM, 0)  # a full batch waits for nothing


BAD = {
    "nothing": b"",
    "half a header": b"\x10\x00\x00",
    "a length beyond its end": struct.pack("=IHHII", 400, PACKET, 0, 0, 0),
    "a length of nothing": struct.pack("=IHHII", 0, PACKET, 0, 0, 0) + bytes(8),
    "no attributes": struct.pack("=IHHII", 20, PACKET, 0, 0, 0) + bytes(4),
    "an attribute beyond its end": struct.pack("=IHHII", 24, PACKET, 0, 0, 0) + bytes(4) + struct.pack("=HH", 99, 1),
    "a number that is cut": struct.pack("=IHHII", 28, PACKET, 0, 0, 0) + bytes(4) + struct.pack("=HHI", 8, 1, 5),
    "another kind": message(1, b"x", kind=77),
}


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name]])
def test_what_is_no_packet_is_passed_over(ends: tuple[socket.socket, socket.socket], name: str) -> None:
    ours, kernels = ends
    kernels.send(BAD[name])
    kernels.send(message(6, b"x"))
    arrays = Arrays()
    assert arrays.receive(ours)[0] == 1
    assert arrays.ids[0] == 6


def test_a_packet_without_payload_has_none(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, kernels = ends
    kernels.send(message(1, None))
    arrays = Arrays()
    assert arrays.receive(ours) == (1, 0)
    assert arrays.payload(0) == b""


def test_arrays_that_do_not_fit_are_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    arrays = Arrays()
    arrays.data = arrays.data[:-1]
    with pytest.raises(ValueError, match="do not fit"):
        arrays.receive(ends[0])


def test_a_socket_that_is_gone_is_an_error() -> None:
    with pytest.raises(OSError, match="descriptor"):
        _nfqueue.answer(-1, 7, 0, np.array([1], np.uint32), np.array([DROP], np.uint32))


def answered(
    ends: tuple[socket.socket, socket.socket], before: int, ids: Sequence[int], verdicts: Sequence[int]
) -> list[tuple[int, int]]:
    """The verdicts that are sent, each with the number up to which it holds."""
    ours, kernels = ends
    made = _nfqueue.answer(ours.fileno(), 7, before, np.array(ids, np.uint32), np.array(verdicts, np.uint32))
    sent = kernels.recv(1 << 16)
    assert len(sent) == 32 * made
    found = []
    for start in range(0, len(sent), 32):
        length, kind = struct.unpack_from("=IH", sent, start)
        queue, _, _, verdict, number = struct.unpack_from("!xxHHHII", sent, start + 16)
        assert (length, kind, queue) == (32, BATCH_VERDICT, 7)
        found.append((verdict, number))
    return found


def fate(waiting: Sequence[int], verdicts: Sequence[tuple[int, int]]) -> dict[int, int]:
    """What the kernel does with packets that wait: a verdict is about all that still wait up to its number."""
    left, found = sorted(waiting), {}
    for verdict, last in verdicts:
        for number in [number for number in left if number <= last]:
            found[number] = verdict
            left.remove(number)
    return found


def test_a_run_of_packets_is_one_message(ends: tuple[socket.socket, socket.socket]) -> None:
    assert answered(ends, 4, [5, 6, 7, 8], [ACCEPT] * 4) == [(ACCEPT, 8)]
    assert answered(ends, 8, [9, 10, 11], [DROP, ACCEPT, ACCEPT]) == [(DROP, 9), (ACCEPT, 11)]


@pytest.mark.parametrize("seed", range(20))
def test_every_packet_gets_its_verdict_and_unseen_ones_are_dropped(
    ends: tuple[socket.socket, socket.socket], seed: int
) -> None:
    chance = np.random.default_rng(seed)
    before, waiting = 100, list(range(101, 151))
    seen = sorted(chance.choice(waiting, 30, replace=False).tolist())
    verdicts = chance.integers(0, 2, 30).tolist()
    found = fate(waiting, answered(ends, before, seen, verdicts))
    wanted = dict(zip(seen, verdicts, strict=True))
    assert found == {number: wanted.get(number, DROP) for number in waiting if number <= seen[-1]}

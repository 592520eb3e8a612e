"""The port where members of a cluster come: strangers there are few, and not waited for long."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from patience import PATIENCE_S

from orchestrator.errors import Forbidden, Unreachable
from orchestrator.lab.processes import free_port
from orchestrator.statesync import sessions
from orchestrator.statesync.sessions import JSON, MOST_OF_AN_ADDRESS, NONCE_BYTES, Door, Session

HERE, MEMBER, OTHER, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.9"
SECRET = bytes(range(16))
SILENT_S = 0.2


class Port:
    """A door, and who was let in."""

    def __init__(self) -> None:
        self.number = free_port()
        self.door = Door(HERE, self.number, lambda address: address in (MEMBER, OTHER))

    def come(self, address: str) -> tuple[socket.socket, socket.socket | None]:
        """Connect from an address; returns the connection's ends, the second one if it was admitted."""
        came = socket.create_connection((HERE, self.number), PATIENCE_S, source_address=(address, 0))
        return came, self.door.admit()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.door.close()


def is_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    with suppress(ConnectionError):
        try:
            return connection.recv(1) == b""
        except TimeoutError:
            return False
    return True


def test_who_comes_from_no_members_address_is_not_let_in(port: Port) -> None:
    came, admitted = port.come(STRANGER)
    with came:
        assert admitted is None
        assert is_ended(came)


def test_of_an_address_the_oldest_that_has_proven_nothing_gives_way(port: Port) -> None:
    with ExitStack() as held:
        pairs = [port.come(OTHER), *(port.come(MEMBER) for _ in range(MOST_OF_AN_ADDRESS))]
        for pair in pairs:
            for end in pair:
                assert end is not None
                held.enter_context(end)
        proven = pairs[1][1]
        assert proven is not None
        port.door.forget(proven)
        pairs += [port.come(MEMBER) for _ in range(2)]
        ended = [is_ended(came) for came, _ in pairs]
        assert ended == [False, False, True, *[False] * MOST_OF_AN_ADDRESS]


def test_a_process_without_descriptors_listens_on(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", refuse)
        assert port.door.admit() is None
    came, admitted = port.come(MEMBER)
    assert admitted is not None
    came.close(), admitted.close()


def test_a_door_that_is_shut_ends_strangers_and_admits_nobody(port: Port) -> None:
    came, admitted = port.come(MEMBER)
    assert admitted is not None
    port.door.shut()
    assert is_ended(came)
    late, none = port.come(MEMBER)
    assert none is None
    assert is_ended(late)
    for each in (came, admitted, late):
        each.close()


# ------------------------------------------------------------------------------------------- how long and how large


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a TCP connection."""
    with socket.create_server((HERE, 0)) as server:
        near = socket.create_connection(server.getsockname(), PATIENCE_S)
        far, _ = server.accept()
    with near, far:
        yield near, far


TRICKLE = struct.pack("<IB", 4000, JSON)
"""A frame begins, of which a byte comes now and then."""


@pytest.mark.parametrize("is_follower", [True, False])
@pytest.mark.parametrize("says", [b"", TRICKLE[:3], TRICKLE], ids=["nothing", "half a head", "a byte at a time"])
def test_who_does_not_prove_the_key_is_not_waited_for(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, is_follower: bool, says: bytes
) -> None:
    """Neither by the member to which it came, nor by one that came to it."""
    monkeypatch.setattr(sessions, "PROVEN_WITHIN_S", 0.5)
    near, far = ends
    far.sendall(bytes(NONCE_BYTES) + says)
    session = Session.begin(near, SECRET, is_follower=is_follower, silent_s=SILENT_S)
    is_over = threading.Event()

    def trickle() -> None:
        while says is TRICKLE and not is_over.wait(0.05):
            with suppress(OSError):
                far.sendall(b"{")

    speaker = threading.Thread(target=trickle, daemon=True)
    speaker.start()
    with pytest.raises(Unreachable, match="does not prove the key"):
        session.receive()
    is_over.set()
    speaker.join()


def test_a_first_frame_is_small(ends: tuple[socket.socket, socket.socket]) -> None:
    """Else a stranger would have a megabyte kept for each of its connections."""
    near, far = ends
    far.sendall(bytes(NONCE_BYTES) + struct.pack("<IB", 5000, JSON))
    session = Session.begin(near, SECRET, is_follower=False, silent_s=SILENT_S)
    with pytest.raises(Forbidden, match="5000 bytes"):
        session.receive()


def test_frames_of_a_member_are_large_and_may_take_long(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PROVEN_WITHIN_S", 0.3)
    near, far = ends
    with ThreadPoolExecutor(2) as both:
        began = [
            both.submit(Session.begin, end, SECRET, is_follower=end is near, silent_s=SILENT_S) for end in (near, far)
        ]
        follower, followed = (each.result(PATIENCE_S) for each in began)
        follower.say(member=3)
        assert followed.hear() == {"member": 3}
        late = both.submit(followed.hear)
        time.sleep(0.5)
        follower.say(text="x" * 5000)
        assert len(late.result(PATIENCE_S)["text"]) == 5000

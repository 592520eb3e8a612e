"""Connections that say nothing, or a byte at a time: they end, and keep nobody out."""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from patience import PATIENCE_S
from served import Served, served

from api import guests
from api.guests import GuestLimits

QUICK = GuestLimits(headers_s=0.5, body_s=1.0, headers_bytes=4096, connections=60, of_address=40)
SLOW_HEADERS = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
SLOW_ENROLMENT = b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
SLOW_BODY = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with little patience."""
    with contextlib.ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guests, "GuestLimits", lambda: QUICK)
            found = running.enter_context(served(tmp_path_factory.mktemp("service")))
        yield found


def dialed(running: Served, source: str = "127.0.0.1") -> socket.socket:
    url = httpx.URL(running.url)
    return socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S, source_address=(source, 0))


def is_ended(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while sock.recv(4096):
            pass
    return True


def healthy(running: Served) -> float:
    """How long a new connection takes to be answered, in seconds."""
    url = httpx.URL(running.url)
    began = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(url.host, url.port, timeout=PATIENCE_S)) as asking:
        asking.request("GET", "/healthz")
        assert asking.getresponse().status == 200
        return time.monotonic() - began


@pytest.mark.parametrize("said", [b"", b"GET", SLOW_HEADERS, SLOW_BODY])
def test_what_is_not_said_in_time_is_not_waited_for(quick: Served, said: bytes) -> None:
    with dialed(quick) as sock:
        sock.sendall(said)
        assert is_ended(sock)


def test_an_empty_line_after_an_answer_is_no_way_to_stay(quick: Served) -> None:
    """It begins no request, and uvicorn waits no more for one that is late."""
    with dialed(quick) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"\r\n")
        assert is_ended(sock)


@pytest.mark.parametrize("said", [SLOW_HEADERS, SLOW_BODY])
def test_a_byte_at_a_time_is_no_way_to_stay(quick: Served, said: bytes) -> None:
    with dialed(quick) as sock:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            sock.sendall(said)
            while time.monotonic() - began < PATIENCE_S / 2:
                sock.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE_S / 2


def test_headers_without_an_end_are_not_kept(quick: Served) -> None:
    with dialed(quick) as sock:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            sock.sendall(SLOW_HEADERS + bytes(0x78 for _ in range(4096)))
            assert is_ended(sock)
        assert time.monotonic() - began < QUICK.headers_s, "not the deadline has ended it"


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\nContent-Length: 9",
        "Content-Length: 2, 2",
        "Content-Length: +2",
        "Content-Length:\r\n 2",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 2",
        "Transfer-Encoding: identity\r\nContent-Length: 2",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding : chunked",
        "X: y\nContent-Length: 2",
        "X: y\rContent-Length: 2",
        "X: y\r\n folded",
    ],
)
def test_a_request_that_two_readers_could_read_differently_is_refused(quick: Served, headers: str) -> None:
    """What stands behind it on the connection is not taken for a request of somebody else."""
    hidden = f"GET /v1/domains HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {quick.token}\r\n\r\n"
    with dialed(quick) as sock:
        sock.sendall(f"POST /v1/enrol HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode() + b"{}" + hidden.encode())
        said = b"".join(iter(lambda: sock.recv(4096), b""))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_a_handshake_without_an_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that has begun: asyncio alone would wait for a minute."""
    with served(tmp_path, tls=True) as running:
        monkeypatch.setattr(guests, "HANDSHAKE_S", 3.0)
        with served(tmp_path / "quick", tls=True) as hasty:
            for said in (b"", b"\x16\x03\x01\x02\x00\x01"):
                with dialed(hasty) as silent, dialed(running) as patient:
                    for each in (silent, patient):
                        each.settimeout(30)
                        each.sendall(said)
                    assert silent.recv(1) == b""
                    patient.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        patient.recv(1)
            with hasty.client() as client:
                assert client.is_ready()


def test_handshakes_without_an_end_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted from their beginning: not their deadline ends them here."""
    monkeypatch.setattr(guests, "HANDSHAKE_S", 3600.0)
    monkeypatch.setattr(guests, "GuestLimits", lambda: QUICK)
    with served(tmp_path, tls=True) as running, contextlib.ExitStack() as held:
        strangers = [held.enter_context(dialed(running)) for _ in range(QUICK.of_address + 10)]
        for each in strangers[:10]:
            assert is_ended(each)
        for source in ("127.0.0.2", "127.0.0.3"):
            held.enter_context(dialed(running, source))
        with running.client() as client:
            assert client.is_ready()


def test_silent_connections_keep_nobody_out(quick: Served) -> None:
    with contextlib.ExitStack() as held:
        for source in ("127.0.0.1", "127.0.0.2"):
            for _ in range(200):
                held.enter_context(dialed(quick, source))
        healthy(quick)


def test_a_connection_in_use_is_not_ended_for_others(quick: Served) -> None:
    following = {"X-Auth-Token": quick.token, "Accept": "text/event-stream"}
    with (
        contextlib.ExitStack() as held,
        httpx.stream("GET", f"{quick.url}/v1/events", headers=following, timeout=PATIENCE_S) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        for _ in range(200):
            held.enter_context(dialed(quick))
        healthy(quick)
        quick.client().domains.create("still-there")
        assert any("domain.created" in line for line in lines)


SLOW_LIST = (
    b"PUT /v1/tenants/slow/acl HTTP/1.1\r\nHost: x\r\nIf-Match: *\r\nContent-Length: 13\r\nExpect: 100-continue\r\n"
)


def test_bodies_of_strangers_give_way_and_those_of_known_callers_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger needs no token to begin one, and may be as slow as anybody."""
    monkeypatch.setattr(guests, "GuestLimits", lambda: replace(QUICK, headers_s=PATIENCE_S, body_s=PATIENCE_S))
    with contextlib.ExitStack() as held:
        running = held.enter_context(served(tmp_path))
        with running.client() as admin:
            admin.domains.create("pop")
            admin.tenants.create("slow", domain="pop")
        known = held.enter_context(dialed(running))
        known.sendall(SLOW_LIST + f"If-Match: *\r\nX-Auth-Token: {running.token}\r\n\r\n".encode())
        assert known.recv(4096).startswith(b"HTTP/1.1 100 "), "its body is read, so its caller is known"
        strangers = [held.enter_context(dialed(running)) for _ in range(2 * QUICK.of_address)]
        for each in strangers:
            with contextlib.suppress(OSError):
                each.sendall(SLOW_BODY)
        healthy(running)
        assert is_ended(strangers[0])
        known.sendall(b'{"rules": []}')
        assert known.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.long
def test_the_service_answers_beside_5000_idle_and_200_slow_connections(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < 12_000:
        pytest.skip("needs 12,000 open files")
    guests.open_files()
    with served(tmp_path) as running, contextlib.ExitStack() as held:
        for number in range(5000):
            held.enter_context(dialed(running, f"127.0.1.{1 + number % 100}"))
        slow = [held.enter_context(dialed(running, f"127.0.2.{1 + number % 100}")) for number in range(200)]
        for number, each in enumerate(slow):
            each.sendall(SLOW_ENROLMENT if number % 2 else SLOW_HEADERS)
        held.enter_context(trickling(slow))
        times = sorted(healthy(running) for _ in range(100))
        assert times[95] < 0.1, times


@contextlib.contextmanager
def trickling(connections: list[socket.socket]) -> Iterator[None]:
    """Say a byte on each, ten times a second, until the block ends."""
    over = threading.Event()

    def say_bytes() -> None:
        while not over.wait(0.1):
            for each in connections:
                with contextlib.suppress(OSError):
                    each.sendall(b"x")

    thread = threading.Thread(target=say_bytes)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

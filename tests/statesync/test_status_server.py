"""A member's state by HTTP: connections that say nothing keep nobody out, and end."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace

import pytest
from patience import PATIENCE_S

from orchestrator.errors import Unreachable
from orchestrator.lab.processes import free_port
from orchestrator.statesync import status
from orchestrator.statesync.status import MOST_OPEN, Status, StatusServer, ask

HOST = "127.0.0.1"
WELL = Status(
    1, "full", "dirty", "synchronous", serves=True, is_whole=True, followers=(), followed=(), held=0, states=(),
    counters={},
)  # fmt: skip


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where a server listens that waits long for those that say nothing."""
    monkeypatch.setattr(status, "SILENT_S", 3600.0)
    port = free_port()
    server = StatusServer(HOST, port, lambda: WELL)
    yield port
    server.close()


def is_ended(sock: socket.socket) -> bool:
    with suppress(ConnectionError):
        return sock.recv(1) == b""
    return True


def test_silent_connections_keep_nobody_out(port: int) -> None:
    with ExitStack() as held:
        for _ in range(MOST_OPEN + 10):
            silent = held.enter_context(socket.create_connection((HOST, port), PATIENCE_S))
            silent.sendall(b"GET /sta")
        assert ask(f"{HOST}:{port}") == WELL
        newest = held.enter_context(socket.create_connection((HOST, port), PATIENCE_S))
        newest.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        assert newest.recv(12) == b"HTTP/1.0 200"


def test_prometheus_reads_how_many_follow_of_how_many() -> None:
    """An alert compares the two: a member that nobody follows any more is alone with its connections."""
    port = free_port()
    server = StatusServer(HOST, port, lambda: replace(WELL, followers=(2,), peers=2))
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert 'aclflow_cluster_followers{member="1"} 1.0' in text
    assert 'aclflow_cluster_peers{member="1"} 2.0' in text


def test_the_oldest_connection_gives_way(port: int) -> None:
    with ExitStack() as held:
        open_ = [held.enter_context(socket.create_connection((HOST, port), PATIENCE_S)) for _ in range(MOST_OPEN + 5)]
        assert all(is_ended(each) for each in open_[:5])


def test_a_connection_that_says_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SILENT_S", 0.2)
    port = free_port()
    server = StatusServer(HOST, port, lambda: WELL)
    try:
        with socket.create_connection((HOST, port), PATIENCE_S) as silent:
            assert is_ended(silent)
    finally:
        server.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"member": "\x1b[2J"}, {"held": None}, {"followed": [{"member": 2, "is_whole": True, "lag": "many"}]},
        {"states": [["tcp", "ESTABLISHED", 1]]}, {"followers": {"2": 2}},
    ],
)  # fmt: skip
def test_what_is_no_status_is_not_shown(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]) -> None:
    """A firewall that was taken over may answer anything; who looks at all members sees the others on."""
    monkeypatch.setattr(status, "asdict", lambda each: {**asdict(each), **wrong})
    port = free_port()
    server = StatusServer(HOST, port, lambda: WELL)
    try:
        with pytest.raises(Unreachable, match="no member of a firewall cluster"):
            ask(f"{HOST}:{port}")
    finally:
        server.close()


def test_a_newer_member_may_say_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "asdict", lambda each: {**asdict(each), "more": 1})
    port = free_port()
    server = StatusServer(HOST, port, lambda: WELL)
    try:
        assert ask(f"{HOST}:{port}") == WELL
    finally:
        server.close()

"""The client's connections against a service that does what services do: close, break off, say nothing, stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from patience import PATIENCE_S

from orchestrator.client.connections import BROKEN, Answer, Connections
from orchestrator.errors import BadInput

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Seen: %d\r\n\r\n"


class Peer:
    """Takes connections one after the other, and hands each to the next of some scripts."""

    def __init__(self, *scripts: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.scripts = list(scripts)
        self.taken = 0
        self.pieces: list[bytes] = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/base"

    def run(self) -> None:
        for script in self.scripts:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.taken += 1
            with connection:
                script(connection)

    def read(self, connection: socket.socket) -> bytes:
        """One piece, as it was sent."""
        piece = connection.recv(1 << 16)
        if piece:
            self.pieces.append(piece)
        return piece


@contextmanager
def peer(*scripts: Callable[[Peer, socket.socket], None]) -> Iterator[tuple[Peer, Connections]]:
    made: list[Peer] = []
    running = Peer(*(lambda connection, script=script: script(made[0], connection) for script in scripts))
    made.append(running)
    connections = Connections(running.url)
    try:
        yield running, connections
    finally:
        connections.close()
        running.listener.close()
        running.thread.join(PATIENCE_S)


def ask(connections: Connections, body: bytes | None = None, timeout_s: float = PATIENCE_S) -> Answer:
    return connections.ask("POST", "/x?a=1", {"X-Word": "y"}, body, timeout_s=timeout_s, held_s=0.0)


def answers(count: int) -> Callable[[Peer, socket.socket], None]:
    """Answers so many requests, and closes."""

    def script(running: Peer, connection: socket.socket) -> None:
        for number in range(count):
            if not running.read(connection):
                return
            connection.sendall(HEAD % number + b"ok")

    return script


def test_a_connection_is_used_again_and_a_request_is_one_piece() -> None:
    with peer(answers(3)) as (running, connections):
        found = [ask(connections, b"body") for _ in range(3)]
    assert [(each.status_code, each.content, each.headers["x-seen"]) for each in found] == [
        (200, b"ok", str(number)) for number in range(3)
    ]
    assert running.taken == 1
    assert len(running.pieces) == 3
    assert all(
        each.startswith(b"POST /base/x?a=1 HTTP/1.1\r\n") and each.endswith(b"\r\n\r\nbody") for each in running.pieces
    )


def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    with peer(answers(1), answers(1)) as (running, connections):
        assert ask(connections).content == b"ok"
        wait_until_closed(connections)
        assert ask(connections).content == b"ok"
    assert running.taken == 2


def wait_until_closed(connections: Connections) -> None:
    connection = connections.idle[-1]
    connection.sock.settimeout(PATIENCE_S)
    assert connection.sock.recv(1, socket.MSG_PEEK) == b""


def test_each_thread_has_a_connection_of_its_own() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def together(running: Peer, connection: socket.socket) -> None:
        del running
        threading.Thread(target=serve, args=(connection.dup(),), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(1 << 16)
            both.wait()  # neither is answered before the other has asked
            connection.sendall(HEAD % 0 + b"ok")

    with peer(together, together) as (running, connections):
        found: list[bytes] = []
        threads = [threading.Thread(target=lambda: found.append(ask(connections).content)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert found == [b"ok", b"ok"]
    assert running.taken == 2


def breaks_off(running: Peer, connection: socket.socket) -> None:
    running.read(connection)
    connection.sendall(HEAD % 0 + b"o")


def says_nothing(running: Peer, connection: socket.socket) -> None:
    running.read(connection)
    running.read(connection)


def speaks_otherwise(running: Peer, connection: socket.socket) -> None:
    running.read(connection)
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def says(answer: bytes) -> Callable[[Peer, socket.socket], None]:
    """Says this whatever it is asked, and closes."""

    def script(running: Peer, connection: socket.socket) -> None:
        running.read(connection)
        with suppress(ConnectionError):
            connection.sendall(answer)

    return script


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (b"HTTP/1.1 100 Continue\r\nX-Seen: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\nX-Seen: 1\r\n\r\n", b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it hangs up", b"until it hangs up"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + bytes(200_000), bytes(200_000)),
    ],
)
def test_an_answer_ends_where_it_says(answer: bytes, content: bytes) -> None:
    with peer(says(answer)) as (_, connections):
        found = ask(connections)
    assert found.content == content
    assert "X-Seen" not in found.headers


@pytest.mark.parametrize("more", [b"HTTP/1.1 500 No\r\nX-Seen: 2\r\nContent-Length: 1\r\n\r\nx", b"garbage"])
def test_what_comes_behind_an_answer_is_nobodys(more: bytes) -> None:
    with peer(says(HEAD % 1 + b"ok" + more)) as (_, connections):
        found = ask(connections)
        assert not connections.idle
    assert (found.status_code, found.content, found.headers["x-seen"]) == (200, b"ok", "1")


def test_of_several_headers_of_a_name_the_first_counts() -> None:
    with peer(says(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\nx-a: 2\r\nX-B: \xe9\r\n\r\n")) as (_, connections):
        found = ask(connections)
    assert dict(found.headers) == {"x-a": "1", "x-b": "\u00e9"}
    assert found.headers.get("X-C") is None


endless_head = says(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000)
endless_line = says(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 1_000_000)
nothing_but_promises = says(b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000)
two_lengths = says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!")
length_and_chunks = says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok")
another_protocol = says(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok")
half_a_head = says(b"HTTP/1.1 200 OK\r\nContent-Le")
WRONG = (
    endless_head,
    endless_line,
    nothing_but_promises,
    two_lengths,
    length_and_chunks,
    another_protocol,
    half_a_head,
)


@pytest.mark.parametrize("script", [breaks_off, says_nothing, speaks_otherwise, *WRONG])
def test_what_is_no_whole_answer_is_broken_and_its_connection_is_not_kept(
    script: Callable[[Peer, socket.socket], None],
) -> None:
    with peer(script) as (_, connections):
        with pytest.raises(BROKEN):
            ask(connections, timeout_s=0.3)
        assert not connections.idle


def streams(running: Peer, connection: socket.socket) -> None:
    running.read(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    running.read(connection)  # until the other side has gone


def test_a_stream_is_read_as_it_comes_and_its_silence_is_bounded() -> None:
    with (
        peer(streams) as (_, connections),
        connections.stream("/s", {}, timeout_s=PATIENCE_S, silence_s=0.2) as going_on,
    ):
        assert going_on.read1(100) == b"abc"
        with pytest.raises(BROKEN):
            going_on.read1(100)


def test_a_stream_that_breaks_off_does_not_look_like_one_that_ends() -> None:
    def broken(running: Peer, connection: socket.socket) -> None:
        running.read(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")

    with (
        peer(broken) as (_, connections),
        connections.stream("/s", {}, timeout_s=PATIENCE_S, silence_s=PATIENCE_S) as going_on,
    ):
        assert going_on.read1(100) == b"ab"
        with pytest.raises(BROKEN):
            going_on.read1(100)


@pytest.mark.parametrize("url", ["", "service:80", "ftp://service", "http://", "http://service:port", "http://[::1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="not the URL of a service"):
        Connections(url)


@pytest.mark.parametrize("url", ["http://192.0.2.1:8420", "http://aclflow.example", "http://[2001:db8::1]:8420/base"])
def test_tokens_are_not_sent_in_clear_off_this_machine_unless_told_to(url: str) -> None:
    with pytest.raises(BadInput, match="ACLFLOW_PLAIN_HTTP=yes") as refused:
        Connections(url)
    assert f"'{url}'" in refused.value.reason
    assert "https://" in refused.value.reason
    Connections(url, plain_http=True)
    Connections(url.replace("http://", "https://"))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8420", "http://localhost", "http://[::1]:8420"])
def test_what_stays_on_this_machine_needs_no_tls(url: str) -> None:
    Connections(url)


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX-Other: b", "/\u00e9"])
def test_what_no_address_can_hold_is_refused_before_anything_is_sent(target: str) -> None:
    with peer() as (_, connections), pytest.raises(BadInput, match="cannot be sent"):
        connections.ask("GET", target, {}, None, timeout_s=1.0, held_s=0.0)


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("DELETE", None, None), ("POST", None, "0"), ("PUT", b"abc", "3")],
)
def test_a_request_says_how_long_its_body_is_where_it_may_have_one(
    method: str, body: bytes | None, length: str | None
) -> None:
    with peer(answers(1)) as (running, connections):
        connections.ask(method, "/x", {"X-Word": "\u00e9"}, body, timeout_s=PATIENCE_S, held_s=0.0)
        url = running.url
    head, _, sent = running.pieces[0].partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    assert lines[0] == f"{method} /base/x HTTP/1.1"
    assert url == f"http://{lines[1].removeprefix('Host: ')}/base"
    assert "X-Word: \u00e9" in lines
    assert [line for line in lines if line.startswith("Content-Length")] == (
        [] if length is None else [f"Content-Length: {length}"]
    )
    assert sent == (body or b"")


@pytest.mark.parametrize("word", ["a\r\nX-Other: b", "\u0142"])
def test_what_no_header_can_hold_is_refused_before_anything_is_sent(word: str) -> None:
    with peer() as (_, connections), pytest.raises(BadInput, match="cannot be sent"):
        connections.ask("GET", "/", {"X-Word": word}, None, timeout_s=1.0, held_s=0.0)

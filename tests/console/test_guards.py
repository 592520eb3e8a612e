"""Wrong tokens by address, and which browsers may bring a token by a link."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NoReturn

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from patience import PATIENCE_S, until
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import Message, Receive, Scope, Send

from api.console import server
from api.console.guards import MOST_TRIES, TRIES_S, Departures, Tries, came_by_tls, is_here
from api.console.server import GuestSocket
from api.guests import Door, Guest, GuestLimits, limit_guests
from orchestrator.errors import Unauthenticated

OPEN_PAGE = (
    b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_an_address_waits_after_so_many_wrong_tokens_and_no_other_does() -> None:
    now = [0.0]
    tries = Tries(lambda: now[0])
    for number in range(MOST_TRIES):
        assert tries.pause_s("192.0.2.1") == 0
        tries.begin("192.0.2.1")
        now[0] = float(number)
    assert tries.pause_s("192.0.2.1") == TRIES_S - MOST_TRIES + 1
    assert tries.pause_s("192.0.2.2") == 0
    now[0] = TRIES_S
    assert tries.pause_s("192.0.2.1") == 0


def test_a_try_that_was_not_wrong_is_forgiven() -> None:
    tries = Tries(lambda: 0.0)
    for _ in range(3 * MOST_TRIES):
        tries.begin("192.0.2.1")
        tries.forgive("192.0.2.1")
    assert tries.pause_s("192.0.2.1") == 0
    tries.forgive("192.0.2.2")


def test_of_ipv6_a_whole_network_is_one_address() -> None:
    tries = Tries(lambda: 0.0)
    for number in range(MOST_TRIES):
        tries.begin(f"2001:db8::{number:x}")
    assert tries.pause_s("2001:db8::ffff:1") > 0
    assert tries.pause_s("2001:db8:0:1::1") == 0
    for _ in range(MOST_TRIES):
        tries.begin("::ffff:192.0.2.1")
    assert tries.pause_s("192.0.2.1") > 0


def test_who_comes_from_many_addresses_costs_bounded_memory() -> None:
    tries = Tries(lambda: 0.0)
    for number in range(20_000):
        tries.begin(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert tries.addresses == 10_000


class Slow:
    """Sessions whose service takes its time for every token, and knows none."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), 0
        self._lock = threading.Lock()

    def sign_in(self, _: str) -> NoReturn:
        with self._lock:
            self.asked += 1
        assert self.go.wait(PATIENCE_S)
        raise Unauthenticated("unknown")


def test_so_many_tokens_are_asked_about_at_a_time() -> None:
    """Of all addresses together: else wrong ones would keep the service, and the console's threads, from others."""
    slow, app, most = Slow(), FastAPI(), 8
    app.include_router(server.routes(slow))  # type: ignore[arg-type]

    async def sign_in(number: int) -> int:
        transport = httpx.ASGITransport(app, client=(f"192.0.2.{number}", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://console") as browser:
            drawn = re.search(r'name="form" value="([^"]+)"', (await browser.get("/login")).text)
            assert drawn is not None
            return (await browser.post("/session", data={"token": "x", "form": drawn[1]})).status_code

    async def sign_in_all() -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3 * most))
        all_of_them = asyncio.gather(*(sign_in(number) for number in range(3 * most)))
        async with asyncio.timeout(PATIENCE_S):
            while slow.asked < most:
                await asyncio.sleep(0.005)
        for _ in range(100):  # whoever is to wait gets every chance to go on instead
            await asyncio.sleep(0)
        assert slow.asked == most
        slow.go.set()
        return await all_of_them

    try:
        assert asyncio.run(sign_in_all()) == [401] * 3 * most
    finally:
        slow.go.set()


@pytest.mark.parametrize(
    ("peer", "host", "here"),
    [
        ("127.0.0.1", "127.0.0.1:8080", True),
        ("127.0.0.1", "localhost:8080", True),
        ("::1", "[::1]:8080", True),
        ("192.0.2.1", "localhost:8080", False),
        ("127.0.0.1", "console.example", False),
    ],
)
def test_a_link_brings_a_token_on_this_machine_alone(peer: str, host: str, here: bool) -> None:
    scope = {
        "type": "http", "scheme": "http", "path": "/login", "query_string": b"", "client": (peer, 1),
        "server": ("127.0.0.1", 8080), "headers": [(b"host", host.encode())],
    }  # fmt: skip
    assert is_here(Request(scope)) is here


@pytest.mark.parametrize(
    ("scheme", "said", "by_tls"), [("http", "http", False), ("http", "https", True), ("https", "", True)]
)
def test_a_browser_came_by_tls_if_a_proxy_says_so(scheme: str, said: str, by_tls: bool) -> None:
    headers = [(b"host", b"console.example"), (b"x-forwarded-proto", said.encode())]
    assert came_by_tls(Request({"type": "http", "scheme": scheme, "path": "/", "headers": headers})) is by_tls


async def _ends_without_an_answer(_scope: Scope, receive: Receive, _send: Send) -> None:
    await receive()


async def _passes_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


def _ask(first: Message) -> list[Message]:
    """What is answered by an application that reads one message and says nothing, behind a middleware of Starlette."""
    answered: list[Message] = []

    async def receive() -> Message:
        return first

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(Departures(BaseHTTPMiddleware(_ends_without_an_answer, _passes_on))(scope, receive, send))
    return answered


def test_a_client_that_leaves_before_its_answer_is_no_error() -> None:
    assert _ask({"type": "http.disconnect"}) == []


def test_a_client_that_stays_and_gets_no_answer_is_one() -> None:
    with pytest.raises(RuntimeError, match="No response returned"):
        _ask({"type": "http.request", "body": b"abc", "more_body": False})


async def _pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Accept every connection of a page, and hold it until it ends."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass


@pytest.fixture
def door() -> Door:
    return Door(GuestLimits(connections=4, of_address=4))


@pytest.fixture
def address(door: Door) -> Iterator[tuple[str, int]]:
    """Where a server listens whose connections have a place at the door."""
    http, ws = limit_guests(Guest, door), limit_guests(GuestSocket, door)
    config = uvicorn.Config(_pages, port=0, http=http, ws=ws, lifespan="off", log_config=None, ws_ping_interval=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join(PATIENCE_S)


def _open_page(address: tuple[str, int]) -> socket.socket:
    page = socket.create_connection(address, timeout=PATIENCE_S)
    page.sendall(OPEN_PAGE)
    assert page.recv(4096).startswith(b"HTTP/1.1 101 ")
    return page


def test_a_page_that_was_closed_keeps_no_place(address: tuple[str, int], door: Door) -> None:
    for _ in range(8):
        page = _open_page(address)
        assert len(door) == 1
        page.close()
        until(lambda: len(door) == 0)


def test_the_page_that_said_nothing_for_longest_gives_way(address: tuple[str, int], door: Door) -> None:
    with ExitStack() as held:
        pages = [held.enter_context(_open_page(address)) for _ in range(4)]
        pages[0].sendall(b"\x89\x80mask")  # a ping
        assert pages[0].recv(100) == b"\x8a\x00"
        held.enter_context(_open_page(address))
        with suppress(ConnectionError):
            assert pages[1].recv(100) == b""
        assert len(door) == 4
        pages[0].sendall(b"\x89\x80mask")
        assert pages[0].recv(100) == b"\x8a\x00"

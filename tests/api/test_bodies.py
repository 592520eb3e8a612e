"""Bodies of requests under way: one tenant's, however slowly they come, leave room for those of others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Response
from patience import PATIENCE_S, until
from served import Served, served
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from api import problems
from api.bodies import LARGE_BODY_BYTES, OF_ALL, OF_ONE, SMALL_BODY_BYTES, BodyLimit, Sender
from api.context import RawBody
from api.pacing import LONGEST_REST_S, SAVED_S
from orchestrator.errors import Unauthenticated
from orchestrator.store.records import Role

SMALL, LIMIT = 50_000, 2 << 20
TENANTS = ("blue", "red")
LIST = b'{"rules": []}'


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a low limit for bodies."""
    with served(tmp_path_factory.mktemp("small"), body_limit_bytes=SMALL) as running:
        with running.client() as admin:
            admin.domains.create("pop")
            for tenant in TENANTS:
                admin.tenants.create(tenant, domain="pop")
        yield running


def begin(running: Served, token: str, tenant: str, size: int) -> socket.socket:
    """Begin to put a list, and say all of it but one byte."""
    url = httpx.URL(running.url)
    line = socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S)
    said = f"PUT /v1/tenants/{tenant}/acl HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n"
    line.sendall(f"{said}Content-Length: {size + 1}\r\n\r\n".encode() + LIST.ljust(size))
    return line


def test_bodies_of_one_tenant_leave_room_for_others(small: Served) -> None:
    blue, red = (small.make_token(Role.MEMBER, tenant) for tenant in TENANTS)

    def put(token: str, tenant: str) -> httpx.Response:
        with small.http(token) as http:
            body, headers = LIST.ljust(SMALL), {"If-Match": "*"}
            return http.put(f"/v1/tenants/{tenant}/acl", content=body, headers=headers)

    with ExitStack() as held:
        for _ in range(OF_ONE):
            held.enter_context(begin(small, blue, "blue", SMALL - 1))
        until(lambda: put(blue, "blue").status_code == 429)
        refused = put(blue, "blue")
        assert (refused.json()["type"].rpartition(":")[2], "Retry-After" in refused.headers) == ("too-often", True)
        assert "tenant blue" in refused.json()["detail"]
        assert put(red, "red").status_code == 200
    until(lambda: put(blue, "blue").status_code == 200)


def test_who_leaves_before_the_end_of_a_body_is_no_defect() -> None:
    """Else a few bytes of anybody's are a hundred lines of the log."""
    app = FastAPI()
    problems.install(app)

    @app.post("/")
    async def read(raw: RawBody) -> Response:
        return Response(raw)

    coming = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Message:
        return next(coming)

    async def send(_: Message) -> None:
        """Nobody hears it."""

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "root_path": ""}
    asyncio.run(app(scope, receive, send))
    assert not [*coming], "it was read to its end"


async def read_all(_: Scope, receive: Receive, send: Send) -> None:
    """An application that reads a body to its end."""
    while (await receive())["more_body"]:
        pass


async def _some_of_all_come_through() -> None:
    limited = BodyLimit(read_all, LIMIT, sender=lambda scope: Sender(scope["who"]), refuse=lambda _: read_all)
    begun, end = asyncio.Semaphore(0), asyncio.Event()

    async def ask(who: str, size: int, *, waits: bool = False) -> None:
        parts = iter([size - 1, 1])

        async def receive() -> Message:
            size = next(parts)
            if size == 1 and waits:
                begun.release()
                await end.wait()
            return {"type": "http.request", "body": bytes(size), "more_body": size > 1}

        scope = {"type": "http", "headers": [], "who": who}
        await limited(scope, receive, None)  # type: ignore[arg-type]

    whose = [f"t{number}" for number in range(OF_ALL // OF_ONE) for _ in range(OF_ONE)]
    slow = [asyncio.create_task(ask(who, LIMIT, waits=True)) for who in whose]
    for _ in slow:
        await begun.acquire()
    for who, status in (("t0", 429), ("new", 503)):
        with pytest.raises(HTTPException) as refused:
            await ask(who, LIMIT)
        assert refused.value.status_code == status
    await ask("new", SMALL_BODY_BYTES)
    end.set()
    await asyncio.gather(*slow)
    await ask("new", LIMIT)


def test_all_bodies_together_are_bounded_and_small_ones_come_through() -> None:
    asyncio.run(_some_of_all_come_through())


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/tokens", 401), ("/v1/domains/pop/enrolment-tokens", 401), ("/v1/enrol", None)]
)
def test_a_body_is_read_when_its_caller_is_known(small: Served, path: str, status: int | None) -> None:
    """Reading it costs more than sending it; who enrols is not known before."""
    url = httpx.URL(small.url)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: guessed\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S) as line:
        line.sendall(head.encode())
        if status is not None:
            assert line.recv(1 << 16).startswith(f"HTTP/1.1 {status} ".encode())
            return
        line.settimeout(0.5)
        with pytest.raises(TimeoutError):
            line.recv(1)


def test_a_known_callers_model_is_read_once_it_is_known(small: Served) -> None:
    """As before, also where it is read on a thread: too long for the event loop."""
    with small.http() as http:
        long = {"role": "reader", "tenant": "blue", "description": "x", "person": "y" * 8_000}
        assert http.post("/v1/tokens", json=long).status_code == 400
        made = http.post("/v1/tokens", json=long | {"person": "Ann"}, headers={"X-Padding": "z" * 5_000})
        assert made.status_code == 201
        twice = b'{"role": "reader", "role": "reader", "description": "' + b"x" * 6_000 + b'"}'
        refused = http.post("/v1/tokens", content=twice, headers={"Content-Type": "application/json"})
        assert (refused.status_code, "stands twice" in refused.json()["detail"]) == (400, True)


def test_a_large_body_that_is_refused_is_paid_for(tmp_path: Path) -> None:
    with served(tmp_path) as running, running.client() as admin:
        admin.domains.create("pop")
        for tenant in TENANTS:
            admin.tenants.create(tenant, domain="pop")
        blue, red = (running.make_token(Role.MEMBER, tenant) for tenant in TENANTS)

        def put(token: str, tenant: str, body: bytes) -> httpx.Response:
            with running.http(token) as http:
                return http.put(f"/v1/tenants/{tenant}/acl", content=body, headers={"If-Match": "*"})

        account = running.service.app.state.services.pace.account("refused bodies of tenant blue")
        assert put(blue, "blue", LIST.ljust(1 << 20)).status_code == 200
        assert account.left_s == SAVED_S, "what is taken pays for its turn"
        assert put(blue, "blue", b"[" * LARGE_BODY_BYTES).status_code == 400
        assert account.left_s == SAVED_S, "a small one is a request like any other"
        assert put(blue, "blue", b'{"rules": 7}'.ljust(1 << 20)).status_code == 400
        assert account.left_s < SAVED_S
        account.spend(1e6)
        late = put(blue, "blue", LIST.ljust(1 << 20))
        assert (late.status_code, int(late.headers["Retry-After"]) > LONGEST_REST_S) == (429, True)
        assert put(blue, "blue", LIST).status_code == 200
        assert put(red, "red", LIST.ljust(1 << 20)).status_code == 200


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_left_of_a_refused_body_is_not_read(tmp_path: Path, tls: bool) -> None:
    """The connection ends soon, and whoever sends hears why."""
    with served(tmp_path, tls=tls) as running:
        body = LIST.ljust(32 << 20)
        with running.client("guessed") as stranger, pytest.raises(Unauthenticated):
            stranger.acls.put("blue", body)
        url = httpx.URL(running.url)
        plain = socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S)
        context = trusting(running) if tls else None
        with plain if context is None else context.wrap_socket(plain, server_hostname=url.host) as line:
            head = "PUT /v1/tenants/blue/acl HTTP/1.1\r\nHost: x\r\nX-Auth-Token: guessed\r\nContent-Length: 60000000"
            line.sendall(head.encode() + b"\r\n\r\n")
            answer = line.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" in answer.lower()
            sent = 0
            with suppress(OSError):
                while sent < 60_000_000:
                    sent += line.send(bytes(1 << 16))
            assert sent < 30_000_000, "what the kernel holds, and no more"


def trusting(running: Served) -> ssl.SSLContext:
    assert running.authority is not None
    return ssl.create_default_context(cafile=str(running.authority))

"""The enforcers' half of the service over real HTTP, for tests: it publishes what it is told, and can misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from patience import PATIENCE_S

from orchestrator.program.countframes import CountClaim
from orchestrator.program.delta import between
from orchestrator.program.program import Program
from orchestrator.program.wire import STREAM_MEDIA_TYPE, encode_delta, encode_program, frame_body


class StubService:
    """One domain `pop1` at a port of its own, in threads."""

    def __init__(self, hosts: list[dict[str, str]], port: int = 0, *, epoch: int = 10) -> None:
        self.hosts = hosts
        self.epoch = epoch
        self.is_shared = False
        """Whether it knows which controllers share switches, as services do since there are such."""
        self.heard: dict[int, float] = {}
        self.reporter: dict[str, int] = {}
        self.enrolments: list[dict[str, str]] = []
        self.points: dict[str, dict[str, object]] = {}
        self.history: list[dict[str, object]] = []
        self.counted: set[str] = set()
        self.loads: list[dict[str, object]] = []
        self.published: list[Program] = []
        self.spoil: Callable[[bytes], bytes] = lambda body: body
        self.changed = threading.Condition()
        self._closed = False
        service = self

        class Handler(_Handler):
            stub = service

        self._server = _Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.02), name="stub", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def publish(self, program: Program) -> None:
        """Make a program the current one."""
        with self.changed:
            self.published.append(program)
            self.changed.notify_all()

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait for something that reports bring about."""
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_S), self.points

    def wait_enforced(self, generation: int, *hosts: str) -> None:
        """Wait until hosts are reported to hold a generation or a later one."""
        self.wait(lambda: all(self.is_enforced(generation, host) for host in hosts))

    def is_enforced(self, generation: int, host: str) -> bool:
        point = self.points.get(host, {})
        return point.get("state") == "enforced" and int(str(point["generation"])) >= generation

    def leading(self, enforcer: int, query: dict[str, str]) -> dict[str, object]:
        """Who leads, as a controller is told it."""
        since, names = time.monotonic() - float(query["silence_s"]), [host["name"] for host in self.hosts]
        leaders = {name: by for name, by in self.reporter.items() if self.heard[by] >= since}
        begins = int(query["begins"])
        led = [
            name
            for name, by in leaders.items()
            if self.points[name]["state"] != "disconnected" and not (begins and by == enforcer)
        ]
        unled = [name for name in names if name not in led]
        return {"leaders": sorted({*leaders.values()}), "unled": unled, "led": led if begins else []}

    def close(self) -> None:
        """Go away; connections are refused from now on."""
        self._server.shutdown()
        self._server.server_close()
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def newer(self, held: tuple[str | None, int]) -> bool:
        """Whether there is a program other than the one of a digest and generation, or no more service."""
        now = self.published[-1] if self.published else None
        return self._closed or (now is not None and (now.digest.hex(), now.generation) != held)


class _Server(ThreadingHTTPServer):
    """Callers that die while they are answered are nothing special here."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    """One request. Keeps connections alive, as the real service does."""

    stub: StubService
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/v1/domains/pop1/hosts":
            self._answer(200, json.dumps(self.stub.hosts).encode())
        elif url.path == "/v1/domains/pop1/program/stream":
            self._program(query)
        elif url.path.endswith("/leading") and self.stub.is_shared:
            with self.stub.changed:
                self._answer(200, json.dumps(self.stub.leading(self._enforcer(url.path), query)).encode())
        else:
            self._answer(404, b'{"type": "urn:aclflow:problem:not-found", "detail": "there is no such path"}')

    @staticmethod
    def _enforcer(path: str) -> int:
        return int(path.split("/")[5])

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/counts" in self.path:
            self._counts()
            return
        body = json.loads(raw or b"{}")
        stub = self.stub
        with stub.changed:
            if self.path == "/v1/enrol":
                if body["token"] in [each["token"] for each in stub.enrolments]:
                    problem = {"type": "urn:aclflow:problem:unauthenticated", "detail": "the token was used"}
                    self._answer(401, json.dumps(problem).encode())
                    return
                stub.enrolments.append(body)
                stub.epoch += 1
                answer = {
                    "enforcer": 2 + len(stub.enrolments),
                    "domain": "pop1",
                    "token": "bearer",
                    "epoch": stub.epoch,
                }
                answer |= {"name": body["name"], "certificate": "", "authority": ""}
                self._answer(201, json.dumps(answer).encode())
            elif self.path.endswith("/epoch"):
                stub.epoch += 1
                self._answer(200, json.dumps({"epoch": stub.epoch}).encode())
            else:
                assert self.headers["X-Auth-Token"] == "bearer"
                stub.heard[self._enforcer(self.path)] = time.monotonic()
                for point in body["points"]:
                    stub.points[point["host"]] = point
                    stub.reporter[point["host"]] = self._enforcer(self.path)
                    stub.history.append(point)
                self._answer(204, b"")
            stub.changed.notify_all()

    def _counts(self) -> None:
        """Nobody counted any host before, and whatever is counted is taken."""
        with self.stub.changed:
            if self.path.endswith("/claim"):
                self.stub.counted.add(self.path.split("/")[-2])
                self._answer(200, CountClaim(0, 0.0, None).to_bytes())
            else:
                self._answer(200, b'{"refused": []}')
            self.stub.changed.notify_all()

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        with self.stub.changed:
            assert self.path.endswith("/load")
            self.stub.loads.append(body)
            self._answer(204, b"")
            self.stub.changed.notify_all()

    def _program(self, query: dict[str, str]) -> None:
        stub, held = self.stub, (query.get("have"), int(query.get("generation", 0)))
        deadline = time.monotonic() + float(query["wait"])
        with stub.changed:
            arrived = stub.changed.wait_for(lambda: stub.newer(held), deadline - time.monotonic())
            if not arrived or not stub.newer(held) or not stub.published:
                self._answer(200, frame_body(), STREAM_MEDIA_TYPE)
                return
            current = stub.published[-1]
            base = next((each for each in reversed(stub.published) if each.digest.hex() == held[0]), None)
        if base is None:
            self._answer(200, frame_body(stub.spoil(encode_program(current))), STREAM_MEDIA_TYPE)
        else:
            self._answer(200, frame_body(stub.spoil(encode_delta(between(base, current)))), STREAM_MEDIA_TYPE)

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

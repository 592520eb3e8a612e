"""A service on a loopback port, for tests that speak HTTP to it."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from patience import PATIENCE_S

from orchestrator.bootstrap import Service, build_server, build_service
from orchestrator.client import Client
from orchestrator.identity.files import AuthorityDir
from orchestrator.logs import configure_logging
from orchestrator.settings import Settings
from orchestrator.store.records import Role


class WallClock:
    """The time, which a test may push on."""

    def __init__(self) -> None:
        self.ahead = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.ahead


@dataclass(frozen=True)
class Served:
    """A running service, an administrator's token, and its clock."""

    url: str
    token: str
    service: Service
    clock: WallClock
    settings: Settings

    def http(self, token: str | None = None) -> httpx.Client:
        """A bare HTTP client with a token (the administrator's by default)."""
        headers = {"X-Auth-Token": self.token if token is None else token}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    def client(self, token: str | None = None) -> Client:
        """A client of ours."""
        return Client(self.url, self.token if token is None else token, authority=self.authority)

    @property
    def authority(self) -> Path | None:
        """Whose certificate the service shows; None without TLS."""
        if self.settings.tls_certificate is not None:
            return self.settings.tls_certificate.with_name("believed.pem")
        return AuthorityDir(self.settings.authority_dir).certificate if self.settings.tls else None

    def make_token(
        self, role: Role, tenant: str | None = None, expires: dt.datetime | None = None, description: str = ""
    ) -> str:
        with self.service.parts.store.write() as unit:
            return unit.tokens.create(role, tenant=tenant, expires=expires, description=description).secret


@contextmanager
def served(directory: Path, **settings: object) -> Iterator[Served]:
    """Serve from a database in `directory` until the block ends."""
    said = {"listen_port": 0, "log_level": "error", "audit_syslog": "none"} | settings
    chosen = Settings(state_dir=directory, **said)  # type: ignore[arg-type]
    configure_logging(chosen)
    clock = WallClock()
    if chosen.tls and not AuthorityDir(chosen.authority_dir).exists:
        AuthorityDir(chosen.authority_dir).create("test", clock())
    service = build_service(chosen, clock=clock)
    with service.parts.store.write() as unit:
        token = unit.tokens.create(Role.ADMIN).secret
    server = build_server(service, chosen, clock)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    here = Served(f"{'https' if chosen.tls else 'http'}://127.0.0.1:{port}", token, service, clock, chosen)
    with here.client() as client:
        while not client.is_ready():
            time.sleep(0.005)
    try:
        yield here
    finally:
        service.parts.release()
        server.should_exit = True
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive(), "the server did not stop"


class ServiceProcess:
    """A service in a process of its own, to be stopped or killed; it keeps its database in `directory`."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._directory = directory
        self._settings = {f"ACLFLOW_{name.upper()}": str(value) for name, value in settings.items()}
        self._log = directory / "service.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def settings(self) -> Settings:
        return Settings(state_dir=self._directory)

    def start(self, authority: Path | None = None) -> float:
        """Start and wait until it is ready; returns the seconds that took. With an authority it speaks TLS."""
        own = {"ACLFLOW_STATE_DIR": str(self._directory), "ACLFLOW_LISTEN_PORT": "0", "ACLFLOW_LOG_FORMAT": "json",
               "ACLFLOW_AUDIT_SYSLOG": "none"}  # fmt: skip
        started = time.monotonic()
        command = "from orchestrator.bootstrap import serve; from orchestrator.settings import load; serve(load())"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command], env=os.environ | own | self._settings, stderr=log
            )
        while "listening" not in (said := self._log.read_text()):
            assert self._process.poll() is None, said
            assert time.monotonic() - started < PATIENCE_S, said
            time.sleep(0.01)
        event = next(json.loads(line) for line in said.splitlines() if "listening" in line)
        self.url = f"{'https' if authority else 'http'}://127.0.0.1:{event['port']}"
        with Client(self.url, authority=authority) as client:
            while not client.is_ready():
                assert time.monotonic() - started < PATIENCE_S, self.log
                time.sleep(0.01)
        return time.monotonic() - started

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> float:
        """Ask it to end; returns the seconds that took."""
        started = time.monotonic()
        self._end(signal.SIGTERM)
        return time.monotonic() - started

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=PATIENCE_S / 2)
            self._process = None

"""Whole services as processes of the product, over HTTPS, and points that follow their programs."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from orchestrator.client import Client
from orchestrator.errors import TryAgain, Unreachable
from orchestrator.identity.files import AuthorityDir
from orchestrator.lab.processes import free_port, wait_until_up
from orchestrator.lab.service import COMMAND
from orchestrator.settings import Settings
from orchestrator.store import open_store
from orchestrator.store.records import Role

HERE = "127.0.0.1"
_PATIENCE_S = 60.0
_AGAIN_S = 0.05
"""So long a point waits before it follows a program again."""


@dataclass(frozen=True, slots=True)
class WholeService:
    """A running service.

    `authority` is the file of the certificate by which it is believed.
    """

    url: str
    authority: Path
    process: subprocess.Popen[bytes]

    def open_client(self, token: str) -> Client:
        """Return a client of this service; close it when done."""
        return Client(self.url, token, authority=self.authority)


def make_token(url: str) -> str:
    """Return a new administrator's token of a database."""
    store = open_store(url)
    try:
        with store.write() as unit:
            return unit.tokens.create(Role.ADMIN, description="bench").secret
    finally:
        store.close()


def make_state_dirs(folder: Path, number: int) -> list[Path]:
    """Make state directories of services that share an authority."""
    made = [folder / str(each) for each in range(number)]
    make_authority(made[0])
    for each in made[1:]:
        shutil.copytree(made[0], each)
    return made


def make_authority(state_dir: Path) -> None:
    """Make the authority of a service whose state directory has none."""
    AuthorityDir(Settings(state_dir=state_dir).authority_dir).create("bench", dt.datetime.now(dt.UTC))


@contextmanager
def start_service(state_dir: Path, url: str, *, within_s: float = _PATIENCE_S) -> Iterator[WholeService]:
    """Run a service on a database until the block ends, from when it is ready.

    Raises Unreachable where it ends, or takes longer than `within_s`.
    """
    port, authority = free_port(), AuthorityDir(Settings(state_dir=state_dir).authority_dir).certificate
    settings = {
        "ACLFLOW_STATE_DIR": str(state_dir),
        "ACLFLOW_DATABASE_URL": url,
        "ACLFLOW_TLS": "yes",
        "ACLFLOW_LISTEN_PORT": str(port),
        "ACLFLOW_LOG_LEVEL": "error",
        "ACLFLOW_AUDIT_SYSLOG": "none",
    }
    with run_product("serve", settings=settings) as process:
        service = WholeService(f"https://{HERE}:{port}", authority, process)
        with service.open_client("") as client:
            wait_until_up(process, client.is_ready, within_s)
        yield service


@contextmanager
def run_product(*arguments: str, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the product, with these settings alone, until the block ends."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
    process = subprocess.Popen([*COMMAND, *arguments], env={**own, **settings})
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


class PointFollowers:
    """Simulated enforcement points: threads that follow domains' programs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, list[tuple[int, float]]] = {}
        self._is_stopping = False

    def follow(self, services: Sequence[WholeService], token: str, domain: str) -> None:
        """Follow a domain's programs at a service, and at the next where it fails."""
        threading.Thread(target=self._follow, args=(services, token, domain), daemon=True).start()

    def _follow(self, services: Sequence[WholeService], token: str, domain: str) -> None:
        """Follow a domain's programs until stopped, and note each generation."""
        for service in cycle(services):
            if self._is_stopping:
                return
            with suppress(TryAgain), service.open_client(token) as client:
                for received in client.points.follow_program(domain, lasts_s=3600.0):
                    if received is not None:
                        self._note_held(domain, received.generation)
            time.sleep(_AGAIN_S)

    def _note_held(self, domain: str, generation: int) -> None:
        """Note that a domain's point holds a generation, and wake who waits for it."""
        with self._changed:
            self._held.setdefault(domain, []).append((generation, time.monotonic()))
            self._changed.notify_all()

    def wait_until_held(self, domain: str, generation: int) -> float:
        """Return when a domain's point came to hold a generation, on the monotonic clock.

        Raises Unreachable where it does not come.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.find_time_held(domain, generation) is not None, _PATIENCE_S):
                raise Unreachable(f"the point of '{domain}' does not come to generation {generation}")
            held = self.find_time_held(domain, generation)
        assert held is not None
        return held

    def find_time_held(self, domain: str, generation: int) -> float | None:
        """Return when a domain's point came to a generation or a later one; else None."""
        with self._changed:
            return next((since for held, since in self._held.get(domain, ()) if held >= generation), None)

    def find_newest(self, domain: str) -> int:
        """Return the generation that a domain's point holds; 0 for none."""
        with self._changed:
            held = self._held.get(domain)
            return held[-1][0] if held else 0

    def stop(self) -> None:
        """Follow nothing again when streams end."""
        self._is_stopping = True

"""CPU time of a rule's change over HTTPS, with one whole service and with two.

As `services.py`, but each service is a process of the product, with its own listener, threads and limits, and points
follow programs as streams over TLS. Two ways, one after the other, with fresh processes, in rounds of either order:

    one      all changes and all points at one service
    mixed    two services with half of the points each, and changes of each domain go to both in turn

What is done by time, as signs of life are, counts too: it is the same however many changes there are.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench.benchlab import processor_s
from orchestrator.bench.scale.services import RESTS_S, RULES, fill_store, make_rule
from orchestrator.client import Client
from orchestrator.errors import TryAgain, Unreachable
from orchestrator.identity.files import AuthorityDir
from orchestrator.lab.ports import free_port
from orchestrator.lab.processes import wait_until_up
from orchestrator.lab.service import COMMAND
from orchestrator.settings import Settings
from orchestrator.store import open_store
from orchestrator.store.records import Role

_HERE = "127.0.0.1"
_FIRST = 128
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class WholeShare:
    """CPU milliseconds of a change, summed over services, in the ways that the module names."""

    one_ms: float
    mixed_ms: float


def measure(url: str, *, domains: int, changes: int, turn: int = 0) -> WholeShare:
    """Measure a round; the database is empty at the first one, and stays filled.

    Odd turns take the ways the other way round. Raises Unreachable where a service does not start.
    """
    names = [f"whole-{number:02}" for number in range(domains)]
    token = _prepare(url, names)
    ways = {"one": (names,), "mixed": (names[0::2], names[1::2])}
    order = sorted(ways, reverse=turn % 2 == 0)
    spent_ms = {}
    for place, name in enumerate(order):
        with TemporaryDirectory(prefix="aclflow-services-") as folder:
            world = _World(url, token, Path(folder), names, changes, turn * len(order) + place)
            spent_ms[name] = world.spend(ways[name]) / changes
    return WholeShare(spent_ms["one"], spent_ms["mixed"])


def _prepare(url: str, names: Sequence[str]) -> str:
    """Fill a database and return an administrator's token."""
    fill_store(url, names, _FIRST)
    store = open_store(url)
    try:
        with store.write() as unit:
            return unit.tokens.create(Role.ADMIN, description="bench").secret
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class _World:
    """The changes of a run, which gives no rule the ports of another run."""

    url: str
    token: str
    folder: Path
    names: Sequence[str]
    changes: int
    run: int

    def spend(self, followed: Sequence[Sequence[str]]) -> float:
        """Return the CPU milliseconds of all services while changes go to them in turn."""
        place = AuthorityDir(Settings(state_dir=self.folder / "0").authority_dir)
        place.create("bench", dt.datetime.now(dt.UTC))
        for number in range(1, len(followed)):
            shutil.copytree(self.folder / "0", self.folder / str(number))
        with ExitStack() as stack:
            started = [
                stack.enter_context(self._start(self.folder / str(number), place.certificate))
                for number in range(len(followed))
            ]
            points = _Points()
            for service, names in zip(started, followed, strict=True):
                for name in names:
                    points.follow(service.url, self.token, place.certificate, name)
            clients = [
                stack.enter_context(Client(each.url, self.token, authority=place.certificate)) for each in started
            ]
            self._make(clients, points, min(self.changes, 2 * len(self.names)), 0)
            before = [processor_s(each.pid) for each in started]
            self._make(clients, points, self.changes, 1)
            spent_s = sum(processor_s(each.pid) - was for each, was in zip(started, before, strict=True))
            points.stop()
        return spent_s * 1000

    def _make(self, clients: Sequence[Client], points: _Points, changes: int, part: int) -> None:
        """Make changes one by one; each is held by its point before the next."""
        for number in range(changes):
            name = self.names[number % len(self.names)]
            client = clients[(number + number // len(self.names)) % len(clients)]
            unique = number + (2 * self.run + part) * self.changes
            written = client.acls.put_rule(name, make_rule(unique % RULES, 1 + unique % 60_000))
            points.wait_until_held(name, written.generation)
        time.sleep(RESTS_S)

    @contextmanager
    def _start(self, folder: Path, authority: Path) -> Iterator[_Service]:
        port = free_port()
        url = f"https://{_HERE}:{port}"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
        settings = {
            **own,
            "ACLFLOW_STATE_DIR": str(folder),
            "ACLFLOW_DATABASE_URL": self.url,
            "ACLFLOW_TLS": "yes",
            "ACLFLOW_LISTEN_PORT": str(port),
            "ACLFLOW_LOG_LEVEL": "error",
            "ACLFLOW_AUDIT_SYSLOG": "none",
        }
        process = subprocess.Popen([*COMMAND, "serve"], env=settings)
        try:
            with Client(url, authority=authority) as client:
                wait_until_up(process, client.is_ready)
            yield _Service(url, process.pid)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class _Service:
    url: str
    pid: int


class _Points:
    """One enforcement point of each domain, as a thread that follows its programs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, int] = {}
        self._stopping = False

    def follow(self, url: str, token: str, authority: Path, domain: str) -> None:
        """Follow a domain's programs from now on."""
        threading.Thread(target=self._follow, args=(url, token, authority, domain), daemon=True).start()

    def _follow(self, url: str, token: str, authority: Path, domain: str) -> None:
        """Follow a domain's programs until stopped, and note each generation."""
        with Client(url, token, authority=authority) as client:
            while not self._stopping:
                with suppress(TryAgain):
                    for received in client.points.follow_program(domain, lasts_s=3600.0):
                        if received is not None:
                            self._hold(domain, received.generation)

    def _hold(self, domain: str, generation: int) -> None:
        """Note that a domain's point holds a generation, and wake who waits for it."""
        with self._changed:
            self._held[domain] = generation
            self._changed.notify_all()

    def wait_until_held(self, domain: str, generation: int) -> None:
        """Wait until a domain's point holds a generation. Raises Unreachable where it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._held.get(domain, 0) >= generation, _PATIENCE_S):
                raise Unreachable(f"the point of '{domain}' does not come to generation {generation}")

    def stop(self) -> None:
        """Follow nothing again when streams end."""
        self._stopping = True

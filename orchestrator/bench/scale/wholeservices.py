"""CPU time of a rule's change over HTTPS, with one whole service and with two.

As `services.py`, but each service is a process of the product, with its own listener, threads and limits, and points
follow programs as streams over TLS. Two ways, one after the other, with fresh processes, in rounds of either order:

    one      all changes and all points at one service
    mixed    two services with half of the points each, and changes of each domain go to both in turn

What is done by time, as signs of life are, counts too: it is the same however many changes there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench.benchlab import processor_s
from orchestrator.bench.scale.serviceprocesses import (
    PointFollowers,
    make_state_dirs,
    make_token,
    start_service,
)
from orchestrator.bench.scale.services import RESTS_S, RULES, fill_store, make_rule
from orchestrator.client import Client

_FIRST = 128


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
    fill_store(url, names, _FIRST)
    token = make_token(url)
    ways = {"one": (names,), "mixed": (names[0::2], names[1::2])}
    order = sorted(ways, reverse=turn % 2 == 0)
    spent_ms = {}
    for place, name in enumerate(order):
        with TemporaryDirectory(prefix="aclflow-services-") as folder:
            world = _World(url, token, Path(folder), names, changes, turn * len(order) + place)
            spent_ms[name] = world.spend(ways[name]) / changes
    return WholeShare(spent_ms["one"], spent_ms["mixed"])


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
        with ExitStack() as stack:
            folders = make_state_dirs(self.folder, len(followed))
            started = [stack.enter_context(start_service(each, self.url)) for each in folders]
            points = PointFollowers()
            for service, names in zip(started, followed, strict=True):
                for name in names:
                    points.follow([service], self.token, name)
            clients = [stack.enter_context(each.open_client(self.token)) for each in started]
            self._make(clients, points, min(self.changes, 2 * len(self.names)), 0)
            before = [processor_s(each.process.pid) for each in started]
            self._make(clients, points, self.changes, 1)
            spent_s = sum(processor_s(each.process.pid) - was for each, was in zip(started, before, strict=True))
            points.stop()
        return spent_s * 1000

    def _make(self, clients: Sequence[Client], points: PointFollowers, changes: int, part: int) -> None:
        """Make changes one by one; each is held by its point before the next."""
        for number in range(changes):
            name = self.names[number % len(self.names)]
            client = clients[(number + number // len(self.names)) % len(clients)]
            unique = number + (2 * self.run + part) * self.changes
            written = client.acls.put_rule(name, make_rule(unique % RULES, 1 + unique % 60_000))
            points.wait_until_held(name, written.generation)
        time.sleep(RESTS_S)

"""What killing a part under writes loses, and how soon writes go on.

Two whole services share a PostgreSQL, and writers change rules of all domains at both in turn. Points follow half of
the domains at each service, and go to the other one where theirs fails. Two controllers share switches of the first
domain. In each round, one after the other, with writes before, while and after:

    controller     one of two is killed (SIGKILL): the other one takes over its switches
    connections    the database ends every session of both services, as it does where it is restarted
    service        one of two is killed (SIGKILL): the other one owns its domains

A write is lost if it was acknowledged, and the rule is older in the database afterwards, or no point comes to its
generation: of the first domain, the switches; of the others, those that follow programs.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text

from orchestrator.bench.scale.ledswitches import lead_switches
from orchestrator.bench.scale.rulewriters import AcknowledgedWrite, RuleWriters, count_lost, read_ports
from orchestrator.bench.scale.serviceprocesses import (
    PointFollowers,
    WholeService,
    make_state_dirs,
    make_token,
    start_service,
)
from orchestrator.bench.scale.services import fill_store
from orchestrator.errors import TryAgain, Unreachable
from orchestrator.lab.processes import wait_until

_FIRST = 192
_SERVICES = 2
_GOES_ON_S = 2.0
"""So long writers go on after all domains were published and enforced again."""
_LOOK_S = 0.02
_SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'aclflow%'"
_END_SESSIONS = text(f"SELECT pid, backend_start, pg_terminate_backend(pid) {_SESSIONS}")
_LIST_SESSIONS = text(f"SELECT pid, backend_start {_SESSIONS}")


@dataclass(frozen=True, slots=True)
class KillCost:
    """What killing each part costs.

    Of acknowledged writes (`written` in all), those that were `lost`. Seconds from the kill until each domain's first
    write that was sent when the part was gone is held by the domain's point (`published`), and until all switches were
    read back with theirs (`enforced`).
    """

    written: float
    lost_controller: float
    published_controller_s: float
    enforced_controller_s: float
    lost_connections: float
    published_connections_s: float
    enforced_connections_s: float
    lost_service: float
    published_service_s: float
    enforced_service_s: float


@dataclass(frozen=True, slots=True)
class _Outage:
    """What one kill cost."""

    written: int
    lost: int
    published_s: float
    enforced_s: float


def measure(url: str, *, domains: int, turn: int = 0) -> KillCost:
    """Measure a round; the database stays filled.

    Odd turns kill the other service and controller. Raises Unreachable where a part does not start, or does not go on
    within a minute.
    """
    names = [f"kill-{number:02}" for number in range(domains)]
    fill_store(url, names, _FIRST)
    token = make_token(url)
    killed = turn % _SERVICES
    with TemporaryDirectory(prefix="aclflow-kills-") as folder, ExitStack() as stack:
        services = [stack.enter_context(start_service(each, url)) for each in make_state_dirs(Path(folder), _SERVICES)]
        points = PointFollowers()
        stack.callback(points.stop)
        for place, name in enumerate(names):
            points.follow(services if place % _SERVICES else services[::-1], token, name)
        controllers = stack.enter_context(lead_switches(url, names[0], services, token, Path(folder)))
        world = _World(url, token, names, services, points)
        controller = world.outlast(lambda: _kill(controllers[killed]))
        connections = world.outlast(lambda: _end_sessions(url))
        service = world.outlast(lambda: _kill(services[killed].process))
    return KillCost(
        written=controller.written + connections.written + service.written,
        lost_controller=controller.lost,
        published_controller_s=controller.published_s,
        enforced_controller_s=controller.enforced_s,
        lost_connections=connections.lost,
        published_connections_s=connections.published_s,
        enforced_connections_s=connections.enforced_s,
        lost_service=service.lost,
        published_service_s=service.published_s,
        enforced_service_s=service.enforced_s,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process as a crash does."""
    process.kill()
    process.wait()


def _end_sessions(url: str) -> None:
    """End every session of services in the database; return when they have ended."""
    engine = create_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            ended = {(pid, began) for pid, began, _ in connection.execute(_END_SESSIONS)}
            wait_until(
                lambda: not ended & {(pid, began) for pid, began in connection.execute(_LIST_SESSIONS)},
                "sessions of the database do not end",
            )
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True)
class _World:
    """Services at work; the switches are those of the first domain."""

    url: str
    token: str
    names: Sequence[str]
    services: Sequence[WholeService]
    points: PointFollowers

    def outlast(self, kill: Callable[[], object]) -> _Outage:
        """Kill something under writes, and wait until all goes on. Raises Unreachable."""
        writers = RuleWriters(self.services, self.token, read_ports(self.url, self.names))
        with writers.run():
            for name in self.names:
                writers.wait_for_write(name, 0.0)
            killed_s = time.monotonic()
            kill()
            gone_s = time.monotonic()
            first = {name: writers.wait_for_write(name, gone_s) for name in self.names}
            published_s = [self.points.wait_until_held(name, each.generation) for name, each in first.items()]
            enforced_s = self._wait_until_enforced(first[self.names[0]].generation)
            time.sleep(_GOES_ON_S)
        lost = count_lost(writers.written, read_ports(self.url, self.names), self._find_held(writers.written))
        return _Outage(len(writers.written), lost, max(published_s) - killed_s, enforced_s - killed_s)

    def _wait_until_enforced(self, generation: int) -> float:
        """Return when all switches were read back with a generation. Raises Unreachable."""
        with ExitStack() as stack:
            clients = [stack.enter_context(each.open_client(self.token)) for each in self.services]

            def is_enforced() -> bool:
                for client in clients:
                    with suppress(TryAgain):
                        return client.domains.read_generation(self.names[0], generation).done
                return False

            wait_until(is_enforced, f"the switches do not come to generation {generation}", every_s=_LOOK_S)
        return time.monotonic()

    def _find_held(self, written: Sequence[AcknowledgedWrite]) -> dict[str, int]:
        """Return which generation each domain's points hold in the end; 0 where switches lag."""
        newest = {each.domain: each.generation for each in sorted(written, key=lambda each: each.generation)}
        held: dict[str, int] = {}
        for name, generation in newest.items():
            with suppress(Unreachable):
                self.points.wait_until_held(name, generation)
            held[name] = self.points.find_newest(name)
        try:
            self._wait_until_enforced(newest[self.names[0]])
        except Unreachable:
            held[self.names[0]] = 0
        return held

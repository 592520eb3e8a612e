"""What killing a part under writes loses, and how soon writes go on.

Two whole services share a PostgreSQL, and writers change rules of all domains at both in turn. Points follow half of
the domains at each service, and go to the other one where theirs fails. Two controllers share switches of the first
domain. In each round, one after the other, with writes before, while and after:

    controller     one of two is killed (SIGKILL): the other one takes over its switches
    connections    the database ends every session of both services, as it does where it is restarted
    service        one of two is killed (SIGKILL): the other one owns its domains

A write is lost if it was acknowledged, and the rule is older in the database afterwards, or no point comes to its
generation: of the first domain, the switches; of the others, those that follow programs. A write gives a rule a port
above all that the domain's rules have had. So a rule whose port is lower than that of an acknowledged write says that
the write was lost, whatever was written to the rule since.

Switches are fakes. Each dials every controller, and again where a connection ends, as Open vSwitch does.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text

from orchestrator.bench.scale.serviceprocesses import (
    HERE,
    PointFollowers,
    WholeService,
    make_state_dirs,
    make_token,
    run_product,
    start_service,
)
from orchestrator.bench.scale.services import RULES, fill_store, make_rule
from orchestrator.client import Client, Host
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.errors import TryAgain, Unreachable
from orchestrator.lab.processes import free_port, wait_until, wait_until_up
from orchestrator.store import Store, open_store

_FIRST = 192
_SERVICES = 2
_GOES_ON_S = 2.0
"""So long writers go on after all domains were published and enforced again."""
_LOOK_S = 0.02
_SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'aclflow%'"
_END_SESSIONS = text(f"SELECT pid, backend_start, pg_terminate_backend(pid) {_SESSIONS}")
_LIST_SESSIONS = text(f"SELECT pid, backend_start {_SESSIONS}")
_SWITCHES = 12
"""So many that a controller whose share is none of them is one chance in two thousand."""
_FIRST_DATAPATH = 0xC0DE00
_AGAIN_S = 0.2
_WRITERS = 4
_PAUSE_S = 0.02
"""Between two writes of a writer."""

Ports = Mapping[str, Mapping[str, int]]
"""The port of each rule, by domain and rule."""


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


@contextmanager
def lead_switches(
    url: str, domain: str, services: Sequence[WholeService], token: str, folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run controllers that share a domain's switches, one a service; yield their processes.

    Raises Unreachable where one does not lead its share.
    """
    switches = [FakeSwitch({"port": 1, "up": 2}, datapath_id=_FIRST_DATAPATH + number) for number in range(_SWITCHES)]
    controllers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        client, store = stack.enter_context(services[0].open_client(token)), open_store(url)
        stack.callback(store.close)
        known = {host.name for host in client.domains.read_hosts(domain)}
        for number, switch in enumerate(switches):
            if (name := f"switch{number}") not in known:
                client.domains.add_host(domain, Host(name, switch.datapath_id, "up"))
        for place, service in enumerate(services):
            port, name = free_port(), f"controller-{secrets.token_hex(4)}"
            settings = {
                "ACLFLOW_STATE_DIR": str(folder / f"controller{place}"),
                "ACLFLOW_URL": service.url,
                "ACLFLOW_AUTHORITY": str(service.authority),
                "ACLFLOW_TOKEN": client.enrolment.invite(domain),
                "ACLFLOW_LOG_LEVEL": "error",
            }
            running = run_product("controller", "--listen", f"{HERE}:{port}", "--name", name, settings=settings)
            controllers.append(stack.enter_context(running))
            stack.enter_context(_dial(switches, port))
            wait_until_up(controllers[-1], lambda name=name: _leads_any(store, domain, name))  # type: ignore[misc]
        yield controllers


def _leads_any(store: Store, domain: str, name: str) -> bool:
    """Return whether a named controller reported a switch last, and no switch lags."""
    with store.read() as unit:
        numbers = {each.id for each in unit.enforcers.list(domain) if each.name == name}
        reported = {point.enforcer for point in unit.enforcers.points(domain)}
        state = unit.enforcers.enforced_state(domain, unit.domains.get(domain).generation)
    return bool(numbers & reported) and state.done


@contextmanager
def _dial(switches: Sequence[FakeSwitch], port: int) -> Iterator[None]:
    """Keep every switch connected to a port during the block."""
    links: dict[int, TcpLink] = {}
    stopping = threading.Event()

    def connect_switches() -> None:
        while not stopping.wait(_AGAIN_S):
            for switch in switches:
                link = links.get(switch.datapath_id)
                if link is None or not link.is_open:
                    with suppress(OSError):
                        links[switch.datapath_id] = TcpLink(switch, (HERE, port))

    dialling = threading.Thread(target=connect_switches, daemon=True)
    dialling.start()
    try:
        yield
    finally:
        stopping.set()
        dialling.join()
        for link in links.values():
            link.close()


@dataclass(frozen=True, slots=True)
class AcknowledgedWrite:
    """A write that a service acknowledged, sent at `sent_s` of the monotonic clock."""

    domain: str
    rule: str
    port: int
    generation: int
    sent_s: float


def read_ports(url: str, domains: Sequence[str]) -> Ports:
    """Return the ports of all rules of domains, as the database has them."""
    store = open_store(url)
    try:
        with store.read() as unit:
            return {
                name: {rule.id: rule.destination_ports[0].low for rule in unit.acls.current(name).acl.rules}
                for name in domains
            }
    finally:
        store.close()


def count_lost(written: Iterable[AcknowledgedWrite], stored: Ports, held: Mapping[str, int]) -> int:
    """Return how many acknowledged writes are not stored, or not held.

    `held` are the generations that domains' points hold.
    """
    return sum(
        stored[each.domain].get(each.rule, 0) < each.port or held.get(each.domain, 0) < each.generation
        for each in written
    )


class RuleWriters:
    """Threads that change a rule of each domain in turn, at each service in turn.

    A write that a service does not acknowledge is not sent again.
    """

    def __init__(self, services: Sequence[WholeService], token: str, ports: Ports) -> None:
        """Prepare writes to the domains whose rules have these ports."""
        self._services = services
        self._token = token
        self._first = {domain: max(rules.values()) for domain, rules in ports.items()}
        self._stopping = threading.Event()
        self._written: list[AcknowledgedWrite] = []

    @property
    def written(self) -> Sequence[AcknowledgedWrite]:
        """The writes that were acknowledged so far."""
        return tuple(self._written)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Write during the block. Raises what a service refuses other than to be tried again."""
        names = sorted(self._first)
        with ThreadPoolExecutor(_WRITERS) as threads:
            parts = [names[place::_WRITERS] for place in range(min(_WRITERS, len(names)))]
            jobs = [threads.submit(self._write_rules, part) for part in parts]
            try:
                yield
            finally:
                self._stopping.set()
            for job in jobs:
                job.result()

    def wait_for_write(self, domain: str, since_s: float) -> AcknowledgedWrite:
        """Wait for a domain's first acknowledged write that was sent after a time.

        Raises Unreachable where there is none.
        """
        wait_until(lambda: self._find_write(domain, since_s) is not None, f"no write of '{domain}' is acknowledged")
        found = self._find_write(domain, since_s)
        assert found is not None
        return found

    def _find_write(self, domain: str, since_s: float) -> AcknowledgedWrite | None:
        return next((each for each in self.written if each.domain == domain and each.sent_s >= since_s), None)

    def _write_rules(self, names: Sequence[str]) -> None:
        with ExitStack() as stack:
            clients = [stack.enter_context(each.open_client(self._token)) for each in self._services]
            for number in count():
                if self._stopping.wait(_PAUSE_S):
                    return
                turn, place = divmod(number, len(names))
                client, name = clients[(turn + place) % len(clients)], names[place]
                self._write_rule(client, name, self._first[name] + turn)

    def _write_rule(self, client: Client, name: str, number: int) -> None:
        """Give a domain's rule the port after a number; note it if acknowledged."""
        rule, sent_s = make_rule(number % RULES, number), time.monotonic()
        with suppress(TryAgain):
            generation = client.acls.put_rule(name, rule).generation
            port = rule.destination_ports[0].low
            self._written.append(AcknowledgedWrite(name, rule.id, port, generation, sent_s))

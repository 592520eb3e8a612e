"""A domain of any size with simulated enforcement points, to measure changes' costs.

The parts of a service run here, on SQLite and without HTTP: store, control, publisher, reports. Enforcement points are
simulated: each reports what it would have read back, once for every program that it is given. A world is measured in a
process of its own, so that CPU seconds and memory are its own (``python -m orchestrator.bench.scale.scaledomain TENANTS
RULES HOSTS AGENTS ROUNDS FOLDER``); the clock leaves out filling the database, which stays in the folder.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.keptprograms import KeptPrograms
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.reports import Report
from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.control.tiers import Tiers
from orchestrator.errors import Busy, Unreachable
from orchestrator.interpreter import collect_seldom
from orchestrator.logs import log_errors_alone
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program, Tier
from orchestrator.store import Store, open_store
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import FirewallRecord, HostRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane
from orchestrator.wire.points import PointState

DOMAIN = "bench"
AT_ONCE = 200
"""So many tenants are put into the database in one transaction."""
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a domain.

    `rules` are those of each tenant, `hosts` share one controller, `agents` speak alone.
    """

    tenants: int
    rules: int
    hosts: int
    agents: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Median CPU seconds by kind of change, without and with reports, and of a start.

    `all_enforced_s` is on the clock: from a rule's change until every point was read back.
    """

    add_tenant: float
    add_endpoint: float
    add_host: float
    one_rule: float
    one_rule_reported: float
    said_again: float
    ready_s: float
    ready_cpu_s: float
    peak_mib: float
    ready_again_s: float
    ready_again_cpu_s: float
    """Of a start that finds the domain's program as it was kept before the last rules came."""
    all_enforced_s: float


class World:
    """A domain at work."""

    def __init__(self, folder: Path, size: Size) -> None:
        self._size = size
        self._folder = folder
        self._switches: list[str] = []
        self._agents: dict[str, int] = {}
        self._url = address_store(folder)
        store = open_store(self._url)
        _fill(store, size)
        store.close()
        self._sequence = 0
        self._wire()  # with nothing in memory, as after a start

    def _wire(self) -> None:
        """Make the parts of a service."""
        metrics = Metrics()
        self._store = open_store(self._url)
        self._publisher, self._tiers = Publisher(), Tiers()
        self._kept = KeptPrograms(self._store, self._folder / "programs", refused=metrics.refused_kept)
        self._control = Control(self._store, Compiler(metrics, self._kept), self._publisher, tiers=self._tiers)
        self._enforcement = Enforcement(self._store, metrics, told=self._control.note_report)

    def close(self) -> None:
        """Stop the service and close its store."""
        self._publisher.close()
        self._control.stop()
        self._store.close()

    def measure(self, rounds: int) -> Cost:
        """Start, make each kind of change `rounds` times, and measure."""
        ready_s, ready_cpu_s = self._start()
        self._enrol()
        self._read_back()
        first = self._size.tenants
        tenants = [self._time_change(_make_tenant_addition(first + turn)) for turn in range(rounds)]
        endpoints = [self._time_change(_make_endpoint_addition(first + turn)) for turn in range(rounds)]
        hosts = [self._time_change(self._make_host_addition(turn)) for turn in range(rounds)]
        rules, reported, enforced, again = [], [], [], []
        for turn in range(rounds):
            started = time.perf_counter()
            rules.append(self._measure_cpu_s(lambda: self._control.write(_make_rule_addition(turn))))  # noqa: B023
            reported.append(rules[-1] + self._measure_cpu_s(self._report_all))
            while not self._is_newest_enforced():
                time.sleep(_LOOK_S)
                self._report_all()
            enforced.append(time.perf_counter() - started)
            again.append(self._measure_cpu_s(self._report_all))
            self._read_back()
        middle, peak_mib = statistics.median, _read_peak_mib()
        ready_again_s, ready_again_cpu_s = self._start_again()
        return Cost(
            add_tenant=middle(tenants),
            add_endpoint=middle(endpoints),
            add_host=middle(hosts),
            one_rule=middle(rules),
            one_rule_reported=middle(reported),
            said_again=middle(again),
            ready_s=ready_s,
            ready_cpu_s=ready_cpu_s,
            peak_mib=peak_mib,
            ready_again_s=ready_again_s,
            ready_again_cpu_s=ready_again_cpu_s,
            all_enforced_s=middle(enforced),
        )

    def _start(self) -> tuple[float, float]:
        """Start; return the seconds until it is ready, on the clock and of the processor."""
        started, cpu = time.perf_counter(), time.process_time()
        self._control.start()
        _wait_until(self._is_ready)
        return time.perf_counter() - started, time.process_time() - cpu

    def _start_again(self) -> tuple[float, float]:
        """Measure a start from a kept program, after one more change of a list."""
        program = self._publisher.program(DOMAIN)
        assert program is not None
        self._kept.save(program)
        self._control.write(_make_rule_addition(self._size.tenants - 1, "late"))
        self.close()
        self._wire()
        return self._start()

    def _time_change(self, work: Callable[[Unit], object]) -> float:
        """CPU seconds of a change; then every point reads back."""
        spent = self._measure_cpu_s(lambda: self._control.write(work))
        self._read_back()
        return spent

    def _measure_cpu_s(self, work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    def _is_ready(self) -> bool:
        try:
            self._control.check_ready()
        except Busy:
            return False
        return self._publisher.program(DOMAIN) is not None

    def _enrol(self) -> None:
        """Enrol a controller for all hosts and an enforcement point for each agent."""
        with self._store.write() as unit:
            self._switches = [host.name for host in unit.domains.hosts(DOMAIN)]
            kinds = {"controller": "openflow", **dict.fromkeys(unit.firewalls.names(DOMAIN), Plane.NFTABLES.value)}
            for name, kind in sorted(kinds.items()):
                token = unit.enforcers.invite(DOMAIN, expires=unit.now + dt.timedelta(hours=1), author="bench")
                self._agents[name] = unit.enforcers.enrol(token, name=name, kind=kind).enforcer.id

    def _read_back(self) -> None:
        """Let every point report until the newest generation is enforced.

        No switch's cache may hold an older one then.
        """
        _wait_until(self._reach_newest)
        time.sleep(CACHE_FOLLOWS_S)
        self._report_all()

    def _reach_newest(self) -> bool:
        self._report_all()
        return self._is_newest_enforced()

    def _is_newest_enforced(self) -> bool:
        """Return whether every point was read back with the newest generation."""
        with self._store.read() as unit:
            newest = unit.domains.get(DOMAIN).generation
        program = self._publisher.program(DOMAIN)
        return (
            program is not None
            and program.generation == newest
            and self._enforcement.enforced_state(DOMAIN, newest).done
        )

    def _report_all(self) -> None:
        """Report current programs: all hosts in one controller's report, every agent by itself."""
        self._sequence += 1
        hosts, servers = self._publisher.program(DOMAIN), self._tiers.publisher(Tier.SERVER).program(DOMAIN)
        if hosts is not None and self._switches:
            self._report_enforced("controller", self._switches, hosts)
        if servers is not None:
            for name in self._agents:
                if name != "controller":
                    self._report_enforced(name, [name], servers)

    def _report_enforced(self, enforcer: str, names: list[str], held: Program) -> None:
        points = (PointReport(name, held.generation, held.digest, PointState.ENFORCED, None, 1) for name in names)
        self._enforcement.report(DOMAIN, self._agents[enforcer], Report(tuple(points), self._sequence))

    def _make_host_addition(self, turn: int) -> Callable[[Unit], object]:
        name, number = f"new{turn}", 1_000_000 + turn
        self._switches.append(name)
        return lambda unit: unit.domains.add_host(DOMAIN, HostRecord(name, number, "up"))


def _fill(store: Store, size: Size) -> None:
    """Put tenants with their lists and endpoints, hosts and firewalls into a database."""
    with store.write() as unit:
        unit.domains.create(DOMAIN)
        for number in range(size.hosts):
            unit.domains.add_host(DOMAIN, HostRecord(f"h{number}", 1 + number, "up"))
        for number in range(size.agents):
            unit.firewalls.add(DOMAIN, FirewallRecord(f"f{number}", Plane.NFTABLES))
    for first in range(0, size.tenants, AT_ONCE):
        with store.write() as unit:
            for number in range(first, min(first + AT_ONCE, size.tenants)):
                _make_tenant_addition(number)(unit)
                _make_endpoint_addition(number)(unit)
                unit.acls.replace(name_tenant(number), _make_list(number, size.rules), author="bench")


def name_tenant(number: int) -> str:
    """Return the name of a tenant by its place."""
    return f"t{number:06}"


def _make_tenant_addition(number: int) -> Callable[[Unit], object]:
    owned = Prefix(Family.IPV4, (10 << 24) + (number << 8), 24)
    return lambda unit: unit.tenants.create(name_tenant(number), name="", domain=DOMAIN, prefixes=[owned])


def _make_endpoint_addition(number: int) -> Callable[[Unit], object]:
    address = Prefix(Family.IPV4, (10 << 24) + (number << 8) + 5, 32)
    endpoint = Endpoint(f"e{number}", TenantId(name_tenant(number)), f"p{number}", (2 << 40) + number + 1, (address,))
    return lambda unit: unit.domains.put_endpoint(DOMAIN, endpoint)


def _make_rule_addition(tenant: int, name: str = "new") -> Callable[[Unit], object]:
    rule = _make_rule(name, 60_000 + tenant % 5_000, 0)
    return lambda unit: unit.acls.insert_rule(name_tenant(tenant), rule, author="bench", position=0)


def _make_list(number: int, rules: int) -> Acl:
    return Acl(tuple(_make_rule(f"r{place}", 1_000 + place, number + place) for place in range(rules)))


def _make_rule(name: str, port: int, source: int) -> Rule:
    far = Addresses((Prefix(Family.IPV4, (192 << 24) + ((source & 0xFF) << 16), 16),))
    ports = (PortRange(port, port),)
    return Rule(RuleId(name), Action.PERMIT, Direction.INGRESS, source=far, protocol=TCP, destination_ports=ports)


def _wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(_LOOK_S)


def _read_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def address_store(folder: Path) -> str:
    """Return where the database of a world in a folder is."""
    return f"sqlite:///{folder / 'store.db'}"


@contextmanager
def open_world(size: Size) -> Iterator[World]:
    """A world in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder, closing(World(Path(folder), size)) as world:
        yield world


def measure_apart(size: Size, rounds: int) -> Cost:
    """Measure a world in a process of its own. Raises Unreachable if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        return measure_in(Path(folder), size, rounds)


def measure_in(folder: Path, size: Size, rounds: int) -> Cost:
    """Measure a world as `measure_apart`, and leave its database and kept programs in a folder."""
    numbers = map(str, (size.tenants, size.rules, size.hosts, size.agents, rounds))
    command = [sys.executable, "-m", __name__, *numbers, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreachable(f"{size} could not be measured: {done.stderr.strip()[-500:]}")
    return Cost(**json.loads(done.stdout))


def _main(tenants: int, rules: int, hosts: int, agents: int, rounds: int, *, folder: Path) -> None:
    collect_seldom()
    with log_errors_alone(), closing(World(folder, Size(tenants, rules, hosts, agents))) as world:
        sys.stdout.write(json.dumps(asdict(world.measure(rounds))))


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:-1]), folder=Path(sys.argv[-1]))

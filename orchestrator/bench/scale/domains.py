"""Change one rule of a small domain, alone and while a large domain is filled.

    ACLFLOW_BENCH_DATABASE=postgresql+psycopg://user@host/name    an empty database, which is filled and stays filled

Both domains are on one PostgreSQL. The parts of one service do both, on two threads: so the figure is the cost of
another domain that shares the processor as well.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import open_store
from orchestrator.store.unit import Unit

DATABASE = "ACLFLOW_BENCH_DATABASE"
"""The variable of the environment that names the database."""

_SMALL, _LARGE = "scale-small", "scale-large"
_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True)
class Load:
    """How many rules are changed, and how long the large domain's lists are.

    As many are changed alone as beside the large domain.
    """

    changes: int
    rules: int


@dataclass(frozen=True, slots=True)
class Latency:
    """99th percentiles of one rule's change, in ms, quiet and beside large lists.

    `bulk_lists` says how many large lists were written meanwhile.
    """

    quiet_p99_ms: float
    bulk_p99_ms: float
    bulk_lists: float


def measure(url: str, load: Load) -> Latency:
    """Measure a load in a fresh database.

    Raises what opening the database raises, and Conflict where it is not empty.
    """
    store = open_store(url)
    publisher = Publisher()
    control = Control(store, Compiler(Metrics()), publisher)
    control.start()
    try:
        for number, domain in enumerate((_SMALL, _LARGE)):
            owned = Prefix(Family.IPV4, (10 << 24) + (number << 16), 16)
            control.write(lambda unit, domain=domain: unit.domains.create(domain))  # type: ignore[misc]
            control.write(
                lambda unit, domain=domain, owned=owned: unit.tenants.create(  # type: ignore[misc]
                    domain, name="", domain=domain, prefixes=[owned]
                ),
                domain=domain,
            )
        _latencies(control, range(load.changes // 4))  # until everything that is made once is there
        quiet = _latencies(control, range(load.changes))
        with _filling(control, load.rules) as written:
            bulk = _latencies(control, range(load.changes, 2 * load.changes), at_least=written)
        return Latency(_find_p99_ms(quiet), _find_p99_ms(bulk), float(len(written)))
    finally:
        publisher.close()
        control.stop()
        store.close()


def _latencies(control: Control, numbers: range, at_least: list[int] | None = None) -> list[float]:
    """Change a rule once for each number; return the seconds of each change.

    With `at_least`, changes go on until two large lists were written.
    """
    took: list[float] = []
    for turn in numbers:
        while True:
            started = time.perf_counter()
            control.carry_out(_make_replacement(_SMALL, 1, turn * 7 + len(took)), payer=_SMALL)
            took.append(time.perf_counter() - started)
            is_last = turn == numbers[-1]
            if not is_last or at_least is None or len(at_least) > 1:
                break
    return took


@contextmanager
def _filling(control: Control, rules: int) -> Iterator[list[int]]:
    """Write one large list after the other during the block; yield their generations."""
    stopping, written = threading.Event(), list[int]()

    def fill_store() -> None:
        turn = 0
        while not stopping.is_set():
            turn += 1
            written.extend(control.carry_out(_make_replacement(_LARGE, rules, turn), payer=_LARGE).generations.values())

    with ThreadPoolExecutor(1) as beside:
        filling = beside.submit(fill_store)
        try:
            yield written
        finally:
            stopping.set()
        filling.result()


def _make_replacement(tenant: str, rules: int, turn: int) -> Callable[[Unit], object]:
    acl = Acl(tuple(_make_rule(number, turn) for number in range(rules)))
    return lambda unit: unit.acls.replace(tenant, acl, author="bench")


def _make_rule(number: int, turn: int) -> Rule:
    far = Addresses((Prefix(Family.IPV4, (192 << 24) + ((number & 0xFFFF) << 8), 24),))
    port = 1 + (number + turn) % 60_000
    return Rule(
        RuleId(f"r{number}"),
        Action.PERMIT,
        Direction.INGRESS,
        source=far,
        protocol=TCP,
        destination_ports=(PortRange(port, port),),
    )


def _find_p99_ms(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=_HUNDREDTHS, method="inclusive")[-1] * 1000

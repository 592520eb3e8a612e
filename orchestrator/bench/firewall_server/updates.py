"""Time from a REST call to servers read back: single pairs, and bursts.

The clock of a call starts with it and stops with its answer, which comes when every server holds the change. In the
burst each tenant has a client of its own, which asks for the next update when the last was answered.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.bench.firewall_server.managed import Managed, run_servers
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.client import Written
from orchestrator.compile.servers.exactpairs import HOSTS4
from orchestrator.enforce.drivers.nftables.pairs import NAMES, PairTable
from orchestrator.errors import Drifted, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId

_PATIENCE_S = 60
_SERVERS = 2
_TENANTS = Prefix.parse("198.18.0.0/15").network
_SOURCES = Prefix.parse("10.0.0.0/8").network
_A_TENANT = 256
_SETTLE_S = 0.02
_MOST = 1_000_000
_ONE = Target(10.0)


@dataclass(slots=True)
class Updates:
    """Results of updates.

    Milliseconds of single updates and of their stages; seconds of a burst, its updates' milliseconds, in how many
    generations, and in how many programs of all servers it was enforced.
    """

    one_ms: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    burst_s: float = 0.0
    burst_ms: list[float] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)
    programs: int = 0


def measure(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Updates:
    """Measure single updates, then the burst.

    Raises Missing, Unreachable, and Drifted where a set does not hold in the end what was acknowledged.
    """
    found = Updates()
    with run_servers(place, _SERVERS, tenant_prefixes(sizes.tenants)) as servers:
        step(f"one of {sizes.held:,} pairs more, from REST")
        _singles(servers, sizes, found)
        step(f"{sizes.burst:,} updates of {sizes.tenants} tenants at once")
        burst(servers, sizes.tenants, sizes.burst // sizes.tenants, found)
    return found


STEPS = 2


def tenant_prefixes(tenants: int) -> Mapping[str, Sequence[Prefix]]:
    """Tenants with 256 addresses each."""
    return {name(number): (Prefix(Family.IPV4, _TENANTS + _A_TENANT * number, 24),) for number in range(tenants)}


def name(tenant: int) -> str:
    """Return a tenant's name."""
    return f"t{tenant}"


def pair(tenant: int, number: int) -> Rule:
    """A permit from one address to one address of a tenant's."""
    source, destination = _SOURCES + number, _TENANTS + _A_TENANT * tenant + number % _A_TENANT
    return Rule(
        RuleId(f"p{number}"), Action.PERMIT,
        source=Addresses((Prefix(Family.IPV4, source, 32),)),
        destination=Addresses((Prefix(Family.IPV4, destination, 32),)),
    )  # fmt: skip


def burst(servers: Managed, tenants: int, updates: int, found: Updates) -> None:
    """Update all tenants at once, each `updates` times.

    Raises Unreachable for one that is not enforced, Drifted.
    """
    before, failed = servers.reports(), []

    def write_for_tenant(tenant: int) -> None:
        try:
            with servers.client() as client:
                waiting = client.waiting(_PATIENCE_S)
                for number in range(updates):
                    began = time.perf_counter()
                    written = waiting.acls.insert_rule(name(tenant), pair(tenant, number), position=0)
                    _check_enforced(written)
                    found.burst_ms.append(1000 * (time.perf_counter() - began))
                    found.generations.add(written.generation)
        except Exception as error:  # noqa: BLE001 -- told below, on the thread that asked
            failed.append(error)

    threads = [threading.Thread(target=write_for_tenant, args=(tenant,)) for tenant in range(tenants)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.burst_s = time.perf_counter() - began
    if failed:
        raise failed[0]
    found.programs = servers.reports() - before
    check(servers, {pair(tenant, number) for tenant in range(tenants) for number in range(updates)})


def check(servers: Managed, wanted: set[Rule]) -> None:
    """Compare what the kernels of all servers hold with some rules. Raises Drifted."""
    keys = {
        b"".join(side.prefixes[0].network.to_bytes(4, "big") for side in (rule.source, rule.destination))
        for rule in wanted
    }
    there = [key for server in servers.servers for key in servers.inside(server, _read_elements)]
    if sorted(there) != sorted(keys):
        raise Drifted(f"the servers hold {len(there)} pairs, {len(keys)} were acknowledged")


def record(results: Results, found: Updates, sizes: Sizes) -> None:
    """Put the figures among a suite's."""
    each_server = found.programs / _SERVERS
    figures = {
        "add_one_rest_ms": Figure.of(found.one_ms, "ms", _ONE),
        "burst_s": Figure.of([found.burst_s], "s"),
        "burst_updates_per_s": Figure.of([sizes.burst / found.burst_s], "1/s"),
        "burst_update_ms": Figure.of(found.burst_ms, "ms"),
        "burst_generations": Figure.of([len(found.generations)], "generations"),
        "burst_programs_a_server": Figure.of([each_server], "programs"),
    }
    results.figures.update(figures)
    heights = {stage: (statistics.median(values),) for stage, values in found.stages.items() if "." not in stage}
    label = "milliseconds, median of each stage"
    results.stacks.append(Stack("where the time of one pair goes", ("one pair",), heights, label))
    results.notes.append(
        f"add_one_rest_ms: REST to read back on {_SERVERS} firewall servers, all that the domain enforces with, for a "
        f"tenant of {sizes.held:,} pairs; the burst: {sizes.burst:,} updates of {sizes.tenants} tenants, each "
        "answered when enforced, and what the kernels hold in the end compared with what was acknowledged"
    )


def _singles(servers: Managed, sizes: Sizes, found: Updates) -> None:
    """Add pairs one by one to a long list, and empty it afterwards."""
    held = tuple(pair(0, sizes.changes + number) for number in range(sizes.held))
    with servers.client() as client:
        waiting = client.waiting(_PATIENCE_S)
        waiting.acls.put(name(0), Acl(held))
        for number in range(sizes.changes):
            time.sleep(_SETTLE_S)
            began = time.perf_counter()
            written = waiting.acls.insert_rule(name(0), pair(0, number), position=number)
            found.one_ms.append(1000 * (time.perf_counter() - began))
            _check_enforced(written)
            for stage, seconds in written.stages.items():
                found.stages.setdefault(stage, []).append(1000 * seconds)
        check(servers, {*held, *(pair(0, number) for number in range(sizes.changes))})
        waiting.acls.put(name(0), Acl())


def _check_enforced(written: Written) -> None:
    if not written.enforced:
        raise Unreachable(f"generation {written.generation} was not enforced in {_PATIENCE_S} s")


def _read_elements() -> list[bytes]:
    tables = [PairTable(each) for each in NAMES]
    try:
        found = [table.elements(HOSTS4, _MOST) for table in tables]
        return [key.tobytes() for keys in found if keys is not None for key in keys]
    finally:
        for table in tables:
            table.close()

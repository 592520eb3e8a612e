"""The manager of firewall servers: the right share for each, many changes for the price of few, moves without a gap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from patience import until

from orchestrator.compile.filters.cacherows import CLASSIFIER
from orchestrator.compile.servers import tenants as servedtenants
from orchestrator.compile.servers.exactpairs import HOSTS4, keys_of
from orchestrator.compile.servers.programs import PEERS, Ask, ServerCompiler
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.pops.manager import ServerManager, Unmade, key_of
from orchestrator.control.pops.rates import UpdateRates
from orchestrator.control.publisher import Publisher
from orchestrator.control.tiers import Tiers
from orchestrator.edge.settings import EdgeSettings
from orchestrator.errors import NotFound, TooLarge, TooOften
from orchestrator.placement.heavy import HeavySettings
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId, TenantId
from orchestrator.policy.prefilter import Misdirect, Share
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.store import open_store
from orchestrator.store.pops.records import NewServer, PopSettings, ServerState
from orchestrator.store.unit import Unit

TENANTS = 12
SERVERS = ("fs1", "fs2", "fs3")
SETTINGS = PopSettings(("outside",), EdgeSettings(functions=8), HeavySettings(0.0, least_packets=10))


class Counted(Publisher):
    """How many programs were published, by server."""

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[str, list[Program]] = {}

    def publish(self, program: Program, change: Delta | None = None, *, again: bool = False) -> bool:
        self.published.setdefault(program.domain, []).append(program)
        return super().publish(program, change, again=again)


class Site:
    """A service's writing side with a PoP of three servers. `enforced` are the generations that were read back; None:
    all of them."""

    def __init__(self, url: str, window_s: float = 0.0, *, vouches: bool = True) -> None:
        self.store = open_store(url)
        self.publisher = Counted()
        self.enforced: set[int] | None = None
        self.told: list[Unmade] = []
        manager = ServerManager(self.publisher, self._is_enforced, vouches=vouches, tells=self.told.append)
        self.settings = replace(SETTINGS, window_ms=1000 * window_s)
        self.control = Control(self.store, Compiler(Metrics()), Publisher(), tiers=Tiers(servers=manager))
        self.control.start()

    def _is_enforced(self, _domain: str, generation: int) -> bool:
        return self.enforced is None or generation in self.enforced

    def begin(self) -> None:
        def everything(unit: Unit) -> None:
            unit.domains.create("d1")
            for number in range(TENANTS):
                prefix = Prefix.parse(f"10.{number}.0.0/24")
                unit.tenants.create(f"t{number}", name=f"t{number}", domain="d1", prefixes=(prefix,))

        self.control.write(everything)
        self.control.write(lambda unit: unit.pops.add("p1", "d1", self.settings))
        for number, name in enumerate(SERVERS, 1):
            server = NewServer(name, f"to-{name}", 0x0AAC1F040000 + number)
            self.control.write(lambda unit, server=server: unit.pops.add_server("p1", server))

    def known_time(self) -> None:
        """From now on time passes for buckets by `ahead_s` alone."""
        self.ahead_s = 0.0
        self.control._tiers.servers._domains["d1"].rates = UpdateRates(lambda: self.ahead_s)

    def hold_all(self) -> None:
        """Every server says that it holds what it was sent, until that is the latest."""

        def held() -> bool:
            for server in SERVERS:
                self.control.reported("d1", server, self._at(server))
            return all(self._at(server) == self.generation for server in SERVERS)

        until(held)
        held()

    def set_list(self, tenant: int, *pairs: int) -> None:
        rules = tuple(
            Rule(RuleId(f"r{pair}"), Action.PERMIT, source=Addresses((Prefix.parse(f"192.0.2.{pair}/32"),)),
                 destination=Addresses((Prefix.parse(f"10.{tenant}.0.{pair}/32"),)))
            for pair in pairs
        )  # fmt: skip
        self.control.write(lambda unit: unit.acls.replace(f"t{tenant}", Acl(rules), author="test"))

    @property
    def generation(self) -> int:
        return self.control.read(lambda unit: unit.domains.get("d1").generation)

    def program(self, server: str) -> Program:
        found = self.publisher.program(key_of("d1", server))
        assert found is not None
        return found

    def settle(self) -> None:
        """Wait until every server was sent the newest generation."""
        newest = self.generation
        until(lambda: all(self._at(server) >= newest for server in SERVERS))

    def rest(self) -> None:
        """Wait until every tenant is served by one server alone."""
        self.settle()
        until(lambda: sum(len(served_prefixes(self.program(server))) for server in SERVERS) == TENANTS)

    def _at(self, server: str) -> int:
        """The newest generation of which a server was sent the program, or is known to hold it."""
        program = self.publisher.program(key_of("d1", server))
        vouched = [each.generation for each in self.control._tiers.servers.vouched("d1") if each.host == server]
        return -1 if program is None else max([program.generation, *vouched])

    def share(self, number: int) -> Share:
        pop = self.control.read(lambda unit: unit.pops.get("p1"))
        policy = self.control.read(lambda unit: unit.domains.policy("d1")).policy
        names = {tenant.number: tenant.id for tenant in policy.tenants}
        mine = frozenset(names[tenant] for tenant, server in pop.places.items() if server == number)
        others = {names[tenant]: server for tenant, server in pop.places.items() if server != number}
        return Share(mine, others, pop.settings.misdirect)

    def close(self) -> None:
        self.control.stop()
        self.store.close()


def pairs_at(program: Program) -> int:
    return len(keys_of(program.flows, HOSTS4))


def served_prefixes(program: Program) -> set[str]:
    """The tenants' prefixes that a program dispatches."""
    (row,) = [row for row in program.flows.rows() if row.table == 1 and row.match == b"map receivers"]
    return {line.split()[0] for line in row.instructions.decode().split("\n") if "goto" in line}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def site(url: str) -> Iterator[Site]:
    made = Site(url)
    made.begin()
    yield made
    made.close()


def test_every_server_has_its_tenants_and_nobody_elses(site: Site) -> None:
    for tenant in range(TENANTS):
        site.set_list(tenant, 1, 2, 3)
    site.rest()
    served = [served_prefixes(site.program(server)) for server in SERVERS]
    assert set().union(*served) == {f"10.{number}.0.0/24" for number in range(TENANTS)}
    assert sum(map(len, served)) == TENANTS
    assert all(served)
    assert sum(pairs_at(site.program(server)) for server in SERVERS) == 3 * TENANTS
    policy = site.control.read(lambda unit: unit.domains.policy("d1")).policy
    for number, server in enumerate(SERVERS, 1):
        peers = [row for row in site.program(server).flows.rows() if row.table == 10]
        assert {row.match[2] for row in peers} == {1, 2, 3} - {number}
        alone, _ = ServerCompiler("x").program(policy, Ask(site.share(number)), 1)
        rest = [row for row in site.program(server).flows.rows() if row.table != 10]
        assert {row.key for row in rest} == {row.key for row in alone.flows.rows()}


def test_a_change_costs_one_server_one_row_and_the_others_none(site: Site) -> None:
    site.set_list(5, 1, 2, 3)
    site.rest()
    before = {server: site.program(server) for server in SERVERS}
    site.set_list(5, 1, 2, 3, 4)
    site.settle()
    sizes = sorted(len(site.program(server).blocks) - len(before[server].blocks) for server in SERVERS)
    assert sizes == [0, 0, 1]
    assert sum(site.program(server).digest == before[server].digest for server in SERVERS) == 2


def test_what_servers_cannot_hold_is_refused_and_nothing_changes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.settle()
    generation = site.generation

    def refuses(*_: object) -> None:
        raise TooLarge("too large for a server", place="rules[0]")

    monkeypatch.setattr(servedtenants, "taken_out", refuses)
    monkeypatch.setattr(servedtenants.Served, "followed", lambda _, __: None)
    with pytest.raises(TooLarge, match=r"tenants\[t1\].acl: rules\[0\]: too large|tenants\[t1\]"):
        site.set_list(1, 7)
    assert site.generation == generation
    assert sum(pairs_at(site.program(server)) for server in SERVERS) == 0


def test_a_burst_comes_to_the_right_state_in_few_programs(url: str) -> None:
    site = Site(url, window_s=0.5)
    site.begin()
    site.rest()
    count = {server: len(site.publisher.published[key_of("d1", server)]) for server in SERVERS}
    began = time.monotonic()
    updates = 0
    for turn in range(8):
        for tenant in range(TENANTS):
            site.set_list(tenant, *range(1, turn + 2))
            updates += 1
    site.settle()
    windows = (time.monotonic() - began) / 0.5  # nobody says that a server holds anything
    assert sum(pairs_at(site.program(server)) for server in SERVERS) == 8 * TENANTS
    for server in SERVERS:
        published = len(site.publisher.published[key_of("d1", server)]) - count[server]
        assert 1 <= published <= min(windows + 2, updates)
    site.close()


def test_a_server_that_holds_its_program_gets_the_next_at_once(url: str) -> None:
    site = Site(url, window_s=60.0)
    site.begin()
    site.hold_all()
    for turn in (1, 2, 3):
        site.set_list(3, turn)
        assert sum(pairs_at(site.program(server)) for server in SERVERS) == 1
        site.set_list(3, turn, turn + 10)  # nobody holds the one before
        assert sum(pairs_at(site.program(server)) for server in SERVERS) == 1
        site.hold_all()
        assert sum(pairs_at(site.program(server)) for server in SERVERS) == 2
    site.close()


def test_who_holds_what_a_change_asks_of_it_is_not_asked_again(url: str) -> None:
    site = Site(url, window_s=60.0)
    site.begin()
    site.hold_all()
    before = {server: site.program(server) for server in SERVERS}
    site.set_list(3, 1)
    (touched,) = [server for server in SERVERS if site.program(server) is not before[server]]
    vouched = {each.host: each for each in site.control._tiers.servers.vouched("d1")}
    assert vouched.keys() == set(SERVERS) - {touched}
    for server, point in vouched.items():
        assert (point.generation, point.digest) == (site.generation, before[server].digest)
    site.set_list(3)  # the touched one has not said yet that it holds the one before
    assert touched not in {each.host for each in site.control._tiers.servers.vouched("d1")}
    site.close()


def test_where_nobody_is_vouched_for_every_server_is_asked(url: str) -> None:
    """As where several services share a database: a server that was not asked would never be known to hold it."""
    site = Site(url, window_s=60.0, vouches=False)
    site.begin()
    site.hold_all()
    before = {server: site.program(server) for server in SERVERS}
    site.set_list(3, 1)
    assert {site.program(server).generation for server in SERVERS} == {site.generation}
    assert site.control._tiers.servers.vouched("d1") == ()
    assert sum(site.program(server).digest != before[server].digest for server in SERVERS) == 1
    site.close()


def test_a_tenant_that_changes_its_list_too_often_waits_and_nobody_else(url: str) -> None:
    site = Site(url)
    site.settings = replace(site.settings, tenant_updates_s=3.0)
    site.begin()
    site.known_time()
    for number in (1, 2, 3):
        site.set_list(1, number)
    with pytest.raises(TooOften, match=r"tenants\[t1\]\.acl: .*more than 3 times a second"):
        site.set_list(1, 4)
    site.set_list(2, 1)
    site.ahead_s += 0.4  # which fills the bucket by one
    site.set_list(1, 4)
    with pytest.raises(TooOften):
        site.set_list(1, 5)
    assert sum(pairs_at(site.program(server)) for server in SERVERS) == 2
    site.close()


def test_killed_in_a_window_nothing_is_lost(url: str) -> None:
    site = Site(url, window_s=60.0)
    site.begin()
    site.set_list(3, 1, 2, 3)  # its server has just been sent a program, and waits for the end of its window
    generation = site.generation
    assert any(site._at(server) < generation for server in SERVERS)
    site.close()
    successor = Site(url)
    successor.rest()
    assert sum(pairs_at(successor.program(server)) for server in SERVERS) == 3
    successor.close()


def test_who_moves_is_served_by_both_until_everybody_holds_it(site: Site) -> None:
    site.set_list(4, 1, 2)
    site.rest()
    site.enforced = set()
    names = {
        tenant.number: tenant.id for tenant in site.control.read(lambda unit: unit.domains.policy("d1")).policy.tenants
    }
    pop = site.control.read(lambda unit: unit.pops.get("p1"))
    (tenant,) = [number for number, name in names.items() if name == TenantId("t4")]
    old = pop.places[tenant]
    new = next(number for number in (1, 2, 3) if number != old)
    site.control.write(lambda unit: unit.pops.place("p1", {"t4": SERVERS[new - 1]}))
    site.settle()
    generation = site.generation
    for number in (old, new):
        assert "10.4.0.0/24" in served_prefixes(site.program(SERVERS[number - 1]))
    site.enforced.add(generation)
    until(lambda: "10.4.0.0/24" not in served_prefixes(site.program(SERVERS[old - 1])))
    assert "10.4.0.0/24" in served_prefixes(site.program(SERVERS[new - 1]))
    assert pairs_at(site.program(SERVERS[old - 1])) == 0


def test_a_lost_servers_tenants_are_served_by_the_others_at_once(site: Site) -> None:
    site.rest()
    mine = served_prefixes(site.program("fs1"))
    assert mine
    site.control.write(lambda unit: unit.pops.set_server_state("p1", "fs1", ServerState.LOST))
    site.settle()
    others = served_prefixes(site.program("fs2")) | served_prefixes(site.program("fs3"))
    assert mine <= others
    until(lambda: not served_prefixes(site.program("fs1")))
    for server in ("fs2", "fs3"):
        assert all(row.match[2] != 1 for row in site.program(server).flows.rows() if row.table == 10)


def test_who_comes_under_the_name_of_one_that_left_is_given_a_program(site: Site) -> None:
    """Nobody has read anything back from it, whatever the one before it held."""
    for number in range(1, TENANTS):
        site.control.write(lambda unit, number=number: unit.tenants.delete(f"t{number}"))
    site.hold_all()
    second = [server for server in SERVERS if not served_prefixes(site.program(server))][1]
    site.control.write(lambda unit: unit.pops.remove_server("p1", second))
    assert site.publisher.program(key_of("d1", second)) is None
    site.control.write(lambda unit: unit.pops.add_server("p1", NewServer(second, "to-new", 0x0AAC1F0400FF)))
    assert site.program(second).generation == site.generation
    assert {each.host for each in site.control._tiers.servers.vouched("d1")} <= {*SERVERS} - {second}


def test_a_fault_in_one_turn_does_not_end_the_servers_only_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set_list(4, 1, 2)
    site.rest()
    old = next(server for server in SERVERS if "10.4.0.0/24" in served_prefixes(site.program(server)))
    new = next(server for server in SERVERS if server != old)
    faults = iter([ValueError("a fault of ours")])

    def enforced(_domain: str, _generation: int) -> bool:
        for fault in faults:
            raise fault
        return True

    monkeypatch.setattr(site.control._tiers.servers, "_enforced", enforced)
    site.control.write(lambda unit: unit.pops.place("p1", {"t4": new}))
    until(lambda: "10.4.0.0/24" not in served_prefixes(site.program(old)))
    assert next(faults, None) is None


def _refusing(monkeypatch: pytest.MonkeyPatch, server: str, error: Exception) -> dict[str, int]:
    """From now on a server's program cannot be made, until `left` is 0; how often it is still refused."""
    kept, faults = ServerCompiler.program, {"left": 1_000_000}

    def program(self: ServerCompiler, *asked: object, **more: object) -> object:
        if self.server == key_of("d1", server) and faults["left"]:
            faults["left"] -= 1
            raise error
        return kept(self, *asked, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ServerCompiler, "program", program)
    return faults


def test_a_program_that_cannot_be_made_is_tried_again_by_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set_list(4, 1)
    site.rest()
    mine = next(server for server in SERVERS if "10.4.0.0/24" in served_prefixes(site.program(server)))
    before = site.program(mine)
    faults = _refusing(monkeypatch, mine, TooLarge("so many rows"))
    site.set_list(4, 1, 2)
    assert site.program(mine) is before, "a server whose program cannot be made holds what it held"
    until(lambda: site.told == [Unmade("d1", mine, "so many rows")])
    faults["left"] = 1
    until(lambda: pairs_at(site.program(mine)) == pairs_at(before) + 1)
    until(lambda: site.told[1:] == [Unmade("d1", mine, None)])
    site.hold_all()


def test_a_change_has_it_tried_at_once_and_others_are_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set_list(4, 1)
    site.rest()
    mine = next(server for server in SERVERS if "10.4.0.0/24" in served_prefixes(site.program(server)))
    other, tenant = next(
        (server, tenant) for server in SERVERS if server != mine
        for tenant in range(TENANTS) if f"10.{tenant}.0.0/24" in served_prefixes(site.program(server))
    )  # fmt: skip
    faults = _refusing(monkeypatch, mine, ValueError("a fault of ours"))
    with structlog.testing.capture_logs() as logged:
        site.set_list(4, 1, 2)
    assert [each["log_level"] for each in logged if "exc_info" in each] == ["error"]
    site.set_list(tenant, 1, 2, 3)
    until(lambda: site.program(other).generation >= site.generation - 1)
    until(lambda: site.told == [Unmade("d1", mine, "ValueError: a fault of ours")])
    faults["left"] = 0
    site.set_list(4, 1, 2, 3)
    assert site.program(mine).generation == site.generation, "whoever changes something does not wait for a retry"
    site.settle()
    policy = site.control.read(lambda unit: unit.domains.policy("d1")).policy
    alone, _ = ServerCompiler("x").program(policy, Ask(site.share(1 + SERVERS.index(mine))), 1)
    rest = [row for row in site.program(mine).flows.rows() if row.table != PEERS]
    assert {row.key for row in rest} == {row.key for row in alone.flows.rows()}


def test_rows_for_classifiers_come_and_go_with_the_setting(site: Site) -> None:
    site.set_list(1, 1, 2)
    site.rest()
    digests = {server: site.program(server).digest for server in SERVERS}
    for wanted in (True, False):
        laid_out = replace(SETTINGS, classify=wanted)
        site.control.write(lambda unit, laid_out=laid_out: unit.pops.set_settings("p1", laid_out))
        site.settle()
        counts = [int((site.program(server).flows.table == CLASSIFIER).sum()) for server in SERVERS]
        assert sum(counts) == (TENANTS * 3 + 2 if wanted else 0)  # each its default and two kinds of return traffic
    assert {server: site.program(server).digest for server in SERVERS} == digests


@pytest.mark.parametrize("misdirect", Misdirect)
def test_the_way_of_misdirected_packets_is_a_setting(site: Site, misdirect: Misdirect) -> None:
    laid_out = replace(SETTINGS, misdirect=misdirect)
    site.control.write(lambda unit: unit.pops.set_settings("p1", laid_out))
    site.settle()
    flows = [*site.program("fs1").flows.rows()]
    rows = {row.match for row in flows if row.table == 1}
    assert (b"chain misdirects" in rows) == (misdirect is Misdirect.REHOME)
    meets = any(row.table == PEERS for row in flows)
    assert meets == (misdirect is Misdirect.REHOME), "servers that hand over nothing need not meet"


async def _watch(site: Site, server: str) -> object:
    return await site.control.watch("d1", None, 5.0, stored_generation=site.generation, server=server)


def test_a_server_watches_its_own_program(site: Site) -> None:
    site.settle()
    answer = asyncio.run(_watch(site, "fs2"))
    assert answer is not None
    assert answer.digest == site.program("fs2").digest  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match="no firewall server 'nobody'"):
        asyncio.run(_watch(site, "nobody"))

"""The writing side of a service with a PoP of three firewall servers, and what its tests ask of their programs."""

from __future__ import annotations

import time
from dataclasses import replace

from patience import until

from orchestrator.compile.servers.exactpairs import HOSTS4, keys_of
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.pops.manager import ServerManager, Unmade, key_of
from orchestrator.control.publisher import Publisher
from orchestrator.control.tiers import Tiers
from orchestrator.edge.settings import EdgeSettings
from orchestrator.placement.heavy import HeavySettings
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.prefilter import Share
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.store import open_store
from orchestrator.store.pops.poprecords import NewServer, PopSettings
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
        self.stopped_s: float | None = None
        manager = ServerManager(self.publisher, self._is_enforced, self._clock, vouches=vouches, tells=self.told.append)
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
        """A minute passes at once; from then on time passes by `stopped_s` alone."""
        self.stopped_s = time.monotonic() + 60.0

    def _clock(self) -> float:
        return time.monotonic() if self.stopped_s is None else self.stopped_s

    def hold_all(self) -> None:
        """Every server says that it holds what it was sent, until that is the latest, and tenants that moved were let
        go, which the manager's thread sends of its own accord."""

        def held() -> bool:
            for server in SERVERS:
                self.control.note_report("d1", server, self.at(server))
            return self.is_at_rest() and all(self.at(server) == self.generation for server in SERVERS)

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
        until(lambda: all(self.at(server) >= newest for server in SERVERS))

    def rest(self) -> None:
        """Wait until every tenant is served by one server alone."""
        self.settle()
        until(self.is_at_rest)

    def is_at_rest(self) -> bool:
        """Whether every tenant is served by one server alone."""
        tenants = self.control.read(lambda unit: unit.domains.policy("d1")).policy.tenants
        return sum(len(served_prefixes(self.program(server))) for server in SERVERS) == len(tenants)

    def at(self, server: str) -> int:
        """The newest generation of which a server was sent the program, or is known to hold it."""
        program = self.publisher.program(key_of("d1", server))
        vouched = [each.generation for each in self.control.tiers.servers.vouched_reports("d1") if each.host == server]
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

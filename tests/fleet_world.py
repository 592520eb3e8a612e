"""A world for fleets: a real store and control, a fake cloud, and agents that live in its VNFs while they may.

Time goes by only when the world is told to `pass_`. The spreading switch is read back at once, unless it is `deaf`.
"""

from __future__ import annotations

import datetime as dt
import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from orchestrator.cloud.base import Cloud, VnfOrder
from orchestrator.cloud.fake import FakeCloud
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.fleet.effects import CloudHand
from orchestrator.control.fleet.keeper import FleetKeeper
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.spreading import Spreading
from orchestrator.control.units import Units
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.oracle import decide
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import MemberState, Patience
from orchestrator.store import Store, open_store
from orchestrator.store.firewalls.fleetrecords import FleetLook, FleetSettings, Member, TrialSheet
from orchestrator.store.migrate import upgrade
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Load
from orchestrator.wire.points import PointState

Result = TypeVar("Result")
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
LOOK_S = 0.25
POLICY = {
    "rules": [
        {"id": "web", "action": "permit", "protocol": "tcp", "destination": "10.29.4.2/32", "destination_ports": "80"},
        {"id": "rest", "action": "deny"},
    ]
}
SETTINGS = FleetSettings(
    size=2,
    decide_every_s=1.0,
    limits=Limits(fewest=0, most=6, cooldown_up_s=2.0, cooldown_down_s=4.0, peak_s=8.0, storm_window_s=60.0),
    patience=Patience(build_s=20.0, load_s=10.0, prove_s=5.0, spread_s=10.0, sick_s=4.0, steady_s=2.0, drain_s=15.0),
)
MEASURED = [Measured(rules, octets, 1e6 / (10 + rules / 100)) for rules in (2, 500, 1000) for octets in (64, 1024)]
"""A VNF with two rules carries about 100 kpps."""


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()


def fresh(path: Path) -> str:
    """The address of a new database with the schema in place."""
    path.write_bytes(_empty())
    return f"sqlite:///{path}"


class Wall:
    def __init__(self) -> None:
        self.now = START
        self.jumped = dt.timedelta()
        self._jumped = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return self.now

    def ticks(self) -> float:
        return (self.now - START - self._jumped).total_seconds()

    def jump(self, by: dt.timedelta) -> None:
        """Set the clock, which takes no time."""
        self.now += by
        self._jumped += by


@dataclass
class Agent:
    """Lives in a VNF. `never` are the things that it does not do: enrol, load, answer, speak; `lies` of its trial."""

    order: VnfOrder
    never: set[str] = field(default_factory=set)
    lies: bool = False
    state: PointState = PointState.ENFORCED
    packets_pps: int = 0
    connections: int = 0
    enforcer: int | None = None

    def live(self, unit: Unit) -> None:
        """A moment of its life."""
        domain, name = self.order.fleet, self.order.name
        if self.enforcer is None:
            if "enrol" in self.never:
                return
            kind = self.order.plane.value
            self.enforcer = unit.enforcers.enrol(self.order.token, name=name, kind=kind).enforcer.id
        if "load" not in self.never:
            generation = unit.domains.get(domain).generation
            unit.enforcers.report(self.enforcer, [PointReport(name, generation, b"digest", self.state)])
        if "speak" not in self.never:
            load = Load(self.packets_pps, self.packets_pps * 8 * 512, 100, self.connections)
            unit.firewalls.report_load(self.enforcer, load)
        sheet = unit.fleets.member(domain, name).trial
        if sheet is not None and sheet.answer is None and "answer" not in self.never:
            unit.fleets.set_trial(domain, name, self._tried(unit, sheet))

    def _tried(self, unit: Unit, sheet: TrialSheet) -> TrialSheet:
        policy = unit.domains.policy(self.order.fleet)
        came = tuple(decide(policy.policy, packet).permitted != self.lies for packet in sheet.packets)
        return replace(sheet, answer=came, held=policy.generation)


class World:
    """One domain `pop` with a fleet, and whatever lives."""

    def __init__(self, address: str, settings: FleetSettings = SETTINGS, **cloud: object) -> None:
        self.wall = Wall()
        self.store: Store = open_store(address, clock=self.wall)
        self.store._clock = self.wall  # not steady: no second goes by by itself, however slow the machine is
        self.agents: dict[str, Agent] = {}
        self.prepare: Callable[[Agent], None] = lambda agent: None
        self.cloud = FakeCloud(booted=self._boot, ended=self._end, **cloud)  # type: ignore[arg-type]
        self.deaf = False
        self.control = self._control()
        self.spreading = Spreading(self.store, Publisher())
        self.keeper = self.new_keeper()
        self.controller = self.write(_found)
        self.set(settings)

    def _control(self) -> Control:
        control = Control(self.store, Compiler(Metrics()), Publisher())
        self.store.subscribe(control.hear)
        return control

    def new_keeper(
        self,
        holder: str = "one",
        *,
        units: Units | None = None,
        cloud: Cloud | None = None,
        spreading: object = None,
        lease_s: float = 5.0,
    ) -> FleetKeeper:
        """What a process that starts would have."""
        hand = CloudHand(cloud or self.cloud, "http://service", ticks=self.wall.ticks)
        return FleetKeeper(
            units or self.control, hand, spreading or self.spreading, holder=holder, lease_s=lease_s,  # type: ignore[arg-type]
            sweep_after_s=3.0, ticks=self.wall.ticks,
        )  # fmt: skip

    def _boot(self, order: VnfOrder) -> None:
        agent = Agent(order)
        self.prepare(agent)
        self.agents[order.name] = agent

    def _end(self, _fleet: str, name: str) -> None:
        self.agents.pop(name, None)

    # ------------------------------------------------------------------------------------------------------ asking

    def write(self, work: Callable[[Unit], Result], *, domain: str | None = None) -> Result:
        return self.control.write(work, domain=domain)

    def read(self, work: Callable[[Unit], Result]) -> Result:
        return self.control.read(work)

    def set(self, settings: FleetSettings) -> None:
        self.write(lambda unit: unit.fleets.put("pop", settings))

    def look(self) -> FleetLook:
        (found,) = self.read(lambda unit: unit.fleets.looks("pop"))
        return found

    def members(self, *, with_gone: bool = False) -> dict[str, Member]:
        found = self.read(lambda unit: unit.fleets.members("pop", with_gone=with_gone))
        return {member.name: member for member in found}

    def states(self) -> dict[str, str]:
        return {name: member.state.value for name, member in self.members().items()}

    def serving(self) -> set[str]:
        return {name for name, member in self.members().items() if member.state is MemberState.SERVING}

    def shares(self) -> dict[str, int]:
        """Who owns buckets at the switch."""
        record = self.spreading.current("pop")
        owners = () if record is None else record.spread.owners
        return {name: owners.count(name) for name in set(owners) if name is not None}

    def told(self, *kinds: str) -> list[tuple[str, str]]:
        with self.store.read() as unit:
            events = unit.events.since(0, limit=1000).events
        return [(each.kind, str(each.detail.get("because", ""))) for each in events if each.kind in kinds]

    # ------------------------------------------------------------------------------------------------------ living

    def live(self) -> None:
        """A moment of everybody's life but the keeper's."""
        for agent in list(self.agents.values()):
            owned = self.members().get(agent.order.name)
            if owned is not None and owned.state not in (MemberState.LEAVING, MemberState.FAILED):
                with self.store.write() as unit:
                    agent.live(unit)
        record = self.spreading.current("pop")
        if record is not None and not self.deaf:
            self.spreading.report("pop", self.controller, record.generation, None)

    def pass_(self, seconds: float) -> None:
        """Time goes by, with a look at everything each quarter of a second."""
        until = self.wall.now + dt.timedelta(seconds=seconds)
        while self.wall.now < until:
            self.step(self.keeper)

    def step(self, keeper: FleetKeeper) -> None:
        self.wall.now += dt.timedelta(seconds=LOOK_S)
        self.live()
        keeper.tick()

    def until(self, holds: Callable[[], bool], most_s: float = 60.0) -> None:
        """Let time go by until something holds."""
        until = self.wall.now + dt.timedelta(seconds=most_s)
        while not holds():
            assert self.wall.now < until, (self.states(), self.cloud.list())
            self.pass_(LOOK_S)

    def close(self) -> None:
        self.store.close()


def _found(unit: Unit) -> int:
    """Make the domain with a tenant; return the enforcement point that controls the spreading switch."""
    unit.domains.create("pop")
    unit.tenants.create("shop", name="", domain="pop", prefixes=[Prefix.parse("10.29.4.0/24")])
    unit.acls.replace("shop", acl_from_json(POLICY), author="test")
    token = unit.enforcers.invite("pop", expires=dt.datetime.max.replace(tzinfo=dt.UTC), author="test")
    return unit.enforcers.enrol(token, name="controller", kind="openflow").enforcer.id

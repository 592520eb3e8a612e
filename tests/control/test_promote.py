"""Rounds of choosing: in time, once, published like any write; and lists that change under what is lifted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.pipelines.host import MISS_PRIORITY, Table
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.promote import Promoter, Round, had_round
from orchestrator.control.publisher import Publisher
from orchestrator.control.rounds import Rounds
from orchestrator.control.units import Units
from orchestrator.errors import NotFound, Unreachable
from orchestrator.placement.choice import Algorithm, Settings, Wish
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, RuleId, TenantId
from orchestrator.program.program import Program
from orchestrator.store import Store, open_store
from orchestrator.store.hits.hitrecords import RuleCounts
from orchestrator.store.hits.rules import Hits
from orchestrator.store.placements import Placement
from orchestrator.store.unit import Unit

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
WEB, SHOP = "10.29.4.2/32", TenantId("shop")
NEAR = tuple(
    {"id": f"p{at}", "action": "permit", "protocol": "tcp", "source": f"10.{at}.{at * 37 % 256}.0/24",
     "source_ports": "1000-1999", "destination": WEB, "destination_ports": str(1000 + at)}
    for at in range(100)
)  # fmt: skip
"""They tell 18,240 kinds of clients apart: more than a minute's connections meet again, while entries are kept."""
LAB = {"id": "lab", "action": "deny", "protocol": "tcp", "source": "10.9.0.0/16", "destination": WEB}
ALL = {"id": "all", "action": "deny", "protocol": "tcp", "destination": WEB}


def service(name: str, port: int) -> dict[str, object]:
    return {"id": name, "action": "permit", "protocol": "tcp", "destination": WEB, "destination_ports": str(port)}


def named(rule: str) -> LiftedRule:
    return LiftedRule(SHOP, RuleId(rule))


class Wall:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now


class Plant:
    """Controls over one database whose loops do not run: the test asks for rounds. Counts are what the test says."""

    def __init__(self, url: str, wall: Wall) -> None:
        self.wall = wall
        self.store: Store = open_store(url, clock=wall)
        self.publisher = Publisher()
        self.control = Control(self.store, Compiler(Metrics()), self.publisher)
        self.store.subscribe(self.control.hear)

    def put(self, *rules: dict[str, object]) -> None:
        acl = acl_from_json({"rules": [*NEAR, *rules]})
        self.control.write(lambda unit: unit.acls.replace("shop", acl, author="test"))

    def choose_by(self, settings: Settings) -> None:
        self.control.write(lambda unit: unit.placements.set_settings("pop", settings))

    def wish(self, rule: str, wish: Wish | None) -> None:
        self.control.write(lambda unit: unit.placements.wish("pop", named(rule), wish))

    def round(self, seconds: float = 300.0) -> bool:
        self.wall.now += dt.timedelta(seconds=seconds)
        return had_round(self.control, "pop")

    def placements(self) -> dict[str, Placement]:
        with self.store.read() as unit:
            return {each.rule.rule: each for each in unit.placements.list("pop")}

    def lifted(self) -> set[str]:
        """The rules that have rows ahead of their lists, by what is published."""
        with self.store.read() as unit:
            numbers = unit.domains.policy("pop").policy.tenants[0].rule_numbers
        cookies = (Cookie.unpack(row.cookie) for row in self.program().flows.rows()
                   if row.table == Table.LIFTED and row.priority != MISS_PRIORITY)  # fmt: skip
        found = {cookie.number for cookie in cookies if cookie is not None and cookie.kind.name == "RULE"}
        return {rule for rule, number in numbers.items() if number in found}

    def program(self) -> Program:
        found = self.publisher.program("pop")
        assert found is not None
        return found

    def told(self) -> list[tuple[str, str]]:
        with self.store.read() as unit:
            events = unit.events.since(0, limit=1000).events
        return [(each.kind.removeprefix("placement."), str(each.detail["rule"])) for each in events
                if each.kind in ("placement.lifted", "placement.lowered")]  # fmt: skip


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Packets of rules since the last round, by rule."""
    packets: dict[str, int] = {}

    def rates(self: Hits, domain: str, *, since: dt.datetime) -> RuleCounts:
        assert since <= self._tx.now
        numbers: Mapping[str, int] = Unit(self._tx).domains.policy(domain).policy.tenants[0].rule_numbers
        known = sorted((numbers[rule], count) for rule, count in packets.items() if rule in numbers)
        number, count = (np.array([pair[at] for pair in known], np.int64) for at in (0, 1))
        idle_s = np.ones(len(known))
        return RuleCounts(since, since + dt.timedelta(seconds=300), number, count, count * 100, idle_s, count / 300.0)

    monkeypatch.setattr(Hits, "rates", rates)
    return packets


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str, counts: dict[str, int]) -> Iterator[Plant]:
    def found(unit: Unit) -> None:
        unit.domains.create("pop")
        unit.tenants.create("shop", name="", domain="pop", prefixes=[Prefix.parse("10.29.4.0/24")])
        unit.domains.put_endpoint("pop", Endpoint("web0", SHOP, "web0", 0x020000000002, (Prefix.parse(WEB),)))

    plant = Plant(url, Wall())
    plant.control.write(found)
    plant.put(service("web", 80), service("old", 8080))
    yield plant
    plant.store.close()


def test_a_busy_rule_goes_up_and_comes_down_when_it_cools(plant: Plant, counts: dict[str, int]) -> None:
    counts |= {"web": 60_000, "old": 10, "p1": 1_000}
    assert plant.round()
    assert plant.lifted() == {"web"}
    assert "saves" in plant.placements()["web"].because
    since = plant.placements()["web"].lifted
    assert since is not None
    assert plant.wall.now <= since < plant.wall.now + dt.timedelta(seconds=1)
    counts["web"] = 100
    plant.round()
    assert (plant.lifted(), plant.placements()) == (set(), {})
    assert plant.told() == [("lifted", "web"), ("lowered", "web")]


def test_nothing_is_written_to_the_program_when_nothing_moves(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    generation = plant.program().generation
    plant.round()
    plant.round()
    assert (plant.program().generation, plant.lifted()) == (generation, {"web"})


def test_rounds_are_had_when_they_are_due(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    ticks = [0.0]
    promoter = Promoter(ticks=lambda: ticks[0])
    assert promoter.tick(plant.control) == 5.0
    plant.wall.now += dt.timedelta(seconds=299)
    ticks[0] = 4.0
    assert promoter.tick(plant.control) == 1.0  # looked at before: not yet again
    ticks[0] = 5.0
    assert promoter.tick(plant.control) == pytest.approx(1.0, abs=0.1)
    assert plant.lifted() == set()
    plant.wall.now += dt.timedelta(seconds=2)
    ticks[0] = 7.0
    promoter.tick(plant.control)
    assert plant.lifted() == {"web"}


def test_who_cannot_have_a_round_keeps_nobody_else_from_theirs(plant: Plant) -> None:
    now, had, left = [0.0], [], {"broken": 0.0, "gone": 0.0, "pop": 0.0}

    def have(_units: Units, name: str) -> None:
        had.append(name)
        if name != "pop":
            raise ValueError("a fault of ours") if name == "broken" else NotFound("there is no domain 'gone'")

    rounds = Rounds(lambda _unit: left.items(), have, ticks=lambda: now[0])
    assert rounds.tick(plant.control) == 5.0
    assert had == ["broken", "gone", "pop"]
    for _ in range(6):
        now[0] += 5.0
        rounds.tick(plant.control)
    assert had.count("pop") == 7
    assert had.count("broken") == had.count("gone") == 5, "they are tried again after 1, 2, 4, 8 and 16 s"


def test_rounds_wait_for_a_store_that_is_away(plant: Plant) -> None:
    def have(_units: Units, _name: str) -> None:
        raise Unreachable("the store's database does not answer")

    with pytest.raises(Unreachable):
        Rounds(lambda _unit: [("pop", 0.0)], have).tick(plant.control)


@pytest.mark.parametrize("days", [30, -30], ids=["forward", "backward"])
def test_rounds_go_on_after_a_clock_jumped(plant: Plant, url: str, counts: dict[str, int], days: int) -> None:
    """Within a process time never goes back; one that is begun afterwards may find the last round in the future."""
    counts["web"] = 60_000
    plant.round()
    plant.wall.now += dt.timedelta(days=days)
    after = Plant(url, plant.wall)
    for number in range(1, 4):
        after.wall.now += dt.timedelta(seconds=301)
        Promoter().tick(after.control)
        with after.store.read() as unit:
            since_round = unit.now - unit.placements.settings("pop").since
        assert dt.timedelta() <= since_round < dt.timedelta(seconds=60), f"no round after {number} intervals"
    assert after.placements()["web"].chosen is not None
    after.store.close()


def test_of_two_services_one_has_the_round(plant: Plant, url: str, counts: dict[str, int]) -> None:
    """Both look, both decide, one writes; the other finds that its round was had."""
    other = Plant(url, plant.wall)
    counts["web"] = 60_000
    plant.wall.now += dt.timedelta(seconds=300)
    looked = [each.control.read(lambda unit: Round.of(unit, "pop")) for each in (plant, other)]
    done = [
        each.control.write(lambda unit, begun=begun: unit.placements.decide("pop", begun.choice(), begun.state.since))
        for each, begun in zip((plant, other), looked, strict=True)
    ]
    assert done == [True, False]
    assert plant.told() == [("lifted", "web")]
    other.store.close()


def test_a_service_that_dies_between_commit_and_publishing_comes_to_the_same_program(
    plant: Plant, url: str, counts: dict[str, int]
) -> None:
    counts["web"] = 60_000
    plant.round()
    fresh = Plant(url, plant.wall)
    fresh.control.maker.catch_up("pop")
    assert fresh.program().digest == plant.program().digest
    assert fresh.lifted() == {"web"}
    fresh.store.close()


def test_a_round_that_fails_changes_nothing(
    plant: Plant, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts["web"] = 60_000

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.control.compiler.compile_host", broken)
        with pytest.raises(ValueError, match="a defect"):
            plant.round()
    assert (plant.lifted(), plant.placements(), plant.told()) == (set(), {}, [])
    assert plant.round(0.0)
    assert plant.lifted() == {"web"}


def test_an_edit_of_the_list_recomputes_the_lift_in_the_same_program(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    generation = plant.program().generation
    plant.put(LAB, service("web", 80), service("old", 8080))
    assert plant.program().generation == generation + 1
    assert plant.lifted() >= {"web"}
    assert plant.told() == [("lifted", "web")]


def test_a_rule_that_loses_its_form_comes_down_in_the_same_step(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    plant.put(ALL, service("web", 80))
    assert (plant.lifted(), plant.placements()) == (set(), {})
    with plant.store.read() as unit:
        event = next(each for each in unit.events.since(0, limit=1000).events if each.kind == "placement.lowered")
    assert event.detail["because"] == "the rules before it decide all its packets"
    plant.put(service("web", 80))
    assert plant.lifted() == set(), "what came down goes up by the next round, not by an edit"
    plant.round()
    assert plant.lifted() == {"web"}


def test_a_lifted_rule_that_is_deleted_is_forgotten(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    plant.put(service("old", 8080))
    assert (plant.lifted(), plant.placements()) == (set(), {})
    assert plant.told()[-1] == ("lowered", "web")


def test_a_pinned_rule_is_lifted_whenever_it_can_be(plant: Plant, counts: dict[str, int]) -> None:
    plant.wish("old", Wish.PINNED)
    assert plant.lifted() == {"old"}
    plant.put(ALL, service("web", 80), service("old", 8080))
    assert plant.lifted() == set()
    assert plant.placements()["old"].because == "the rules before it decide all its packets"
    plant.put(service("web", 80), service("old", 8080))
    assert plant.lifted() == {"old"}
    counts["old"] = 0
    plant.round()
    assert plant.lifted() == {"old"}
    plant.wish("old", None)
    assert (plant.lifted(), plant.placements()) == (set(), {})
    assert plant.told() == [("lifted", "old"), ("lowered", "old")] * 2


def test_a_forbidden_rule_comes_down_and_stays_down(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    plant.wish("web", Wish.FORBIDDEN)
    assert plant.lifted() == set()
    plant.round()
    assert plant.lifted() == set()
    assert plant.placements()["web"].wish is Wish.FORBIDDEN


def test_wishes_are_for_rules_that_are_there(plant: Plant) -> None:
    with pytest.raises(NotFound, match="no rule 'nothing'"):
        plant.wish("nothing", Wish.PINNED)


def test_the_papers_algorithm_lifts_by_packets(plant: Plant, counts: dict[str, int]) -> None:
    plant.choose_by(Settings(Algorithm.PAPER))
    counts |= {"web": 5_000, "old": 9_000}
    plant.round()
    assert plant.lifted() == {"old"}
    plant.round()
    assert plant.lifted() == {"old", "web"}


def test_switched_off_it_takes_down_what_was_chosen(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    plant.choose_by(Settings(Algorithm.OFF))
    plant.round()
    assert plant.lifted() == set()


def test_a_tenant_that_is_deleted_takes_its_placements_along(plant: Plant, counts: dict[str, int]) -> None:
    counts["web"] = 60_000
    plant.round()
    plant.control.write(lambda unit: unit.domains.remove_endpoint("pop", "web0"))
    assert plant.lifted() == set()
    plant.control.write(lambda unit: unit.tenants.delete("shop"))
    assert plant.placements() == {}

"""What a list and a domain may take at most, held before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.control import ceilings as module
from orchestrator.control.ceilings import Ceilings, takes_long
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.store import open_store
from orchestrator.store.records import PolicySnapshot, Quota
from orchestrator.store.transaction import StoreSettings
from orchestrator.store.unit import Unit


class CountingCompiler(Compiler):
    """A compiler that says how often it was asked."""

    asked = 0

    def compile(self, domain: str, snapshot: PolicySnapshot, **named: bool):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().compile(domain, snapshot, **named)


class World:
    """Two tenants of a domain whose lists may need 1,000 flow entries each, and 1,500 together."""

    def __init__(self, path: Path, settings: StoreSettings | None = None) -> None:
        self.store = open_store(f"sqlite:///{path / 'store.db'}", settings=settings)
        self.compiler = CountingCompiler(Metrics())
        self.control = Control(self.store, self.compiler, Publisher(), ceilings=Ceilings(1_000, 1_500))

        def begin(unit):  # type: ignore[no-untyped-def]
            unit.domains.create("pop")
            for name, prefix in (("red", "10.1.0.0/16"), ("blue", "10.2.0.0/16")):
                unit.tenants.create(name, name="", domain="pop", prefixes=[Prefix.parse(prefix)])

        self.control.write(begin)
        self.control.start()

    def put(self, tenant: str, acl: Acl) -> None:
        self.control.write(lambda unit: unit.acls.replace(tenant, acl, author="test"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.control.stop()
    made.store.close()


def ports(sources: int, destinations: int, *, also: int = 0) -> Acl:
    """A list of one rule of odd ports by odd ports, and some plain ones."""
    wide = {
        "id": "wide", "action": "permit", "protocol": "tcp", "source": "192.0.2.1",
        "source_ports": [2 * each + 1 for each in range(sources)],
        "destination_ports": [2 * each + 1 for each in range(destinations)],
    }  # fmt: skip
    plain = [{"id": f"p{each}", "action": "permit", "protocol": "tcp", "source": "192.0.2.1"} for each in range(also)]
    return acl_from_json({"rules": [*plain, wide]})


def test_a_rule_that_costs_too_much_is_refused_before_it_is_compiled(world: World) -> None:
    world.put("red", ports(5, 5))
    asked = world.compiler.asked
    with pytest.raises(
        TooLarge, match=r"Rule 'wide' may need the most, 4810.*name fewer prefixes and ports"
    ) as refused:
        world.put("red", ports(600, 600, also=2))
    assert "the ceiling is 1000" in refused.value.reason
    assert refused.value.place == "tenants[red].acl.rules[2]"
    assert world.compiler.asked == asked
    world.put("red", ports(6, 6))


def test_the_lists_of_a_domain_are_held_together(world: World) -> None:
    world.put("red", ports(30, 30))
    with pytest.raises(TooLarge, match="over its ceiling of 1500") as refused:
        world.put("blue", ports(28, 28))
    assert refused.value.place == "tenants[blue].acl.rules[0]"
    world.put("red", ports(20, 20))
    world.put("blue", ports(28, 28))


def test_a_list_that_is_over_a_ceiling_may_become_smaller(world: World) -> None:
    world.put("red", ports(30, 30))
    low = Control(world.store, world.compiler, Publisher(), ceilings=Ceilings(500, 1_000))
    low.start()
    try:
        low.write(lambda unit: unit.acls.replace("blue", ports(2, 2), author="test"))
        low.write(lambda unit: unit.acls.replace("red", ports(29, 30), author="test"))
        with pytest.raises(TooLarge, match="the ceiling is 500"):
            low.write(lambda unit: unit.acls.replace("red", ports(30, 30), author="test"))
    finally:
        low.stop()


@contextmanager
def remembering(world: World, ceilings: Ceilings) -> Iterator[Control]:
    """A service on the same database that knows both lists, and hears of no change."""
    made = Control(world.store, world.compiler, Publisher(), ceilings=ceilings)
    made.write(lambda unit: unit.acls.replace("blue", ports(2, 2), author="test"))
    try:
        yield made
    finally:
        made.stop()


def test_a_list_that_another_service_made_smaller_does_not_grow_back(world: World) -> None:
    world.put("red", ports(30, 30))
    with remembering(world, Ceilings(500, 10_000)) as stale:
        world.put("red", ports(2, 2))
        with pytest.raises(TooLarge, match="the ceiling is 500"):
            stale.write(lambda unit: unit.acls.replace("red", ports(29, 30), author="test"))
        stale.write(lambda unit: unit.acls.replace("red", ports(20, 20), author="test"))


def test_a_domain_whose_lists_another_service_made_smaller_does_not_grow_back(world: World) -> None:
    world.put("red", ports(30, 30))
    world.put("blue", ports(3, 3))
    with remembering(world, Ceilings(1_000, 500)) as stale:
        world.put("red", ports(2, 2))
        with pytest.raises(TooLarge, match="over its ceiling of 500"):
            stale.write(lambda unit: unit.acls.replace("red", ports(29, 30), author="test"))
        stale.write(lambda unit: unit.acls.replace("red", ports(15, 15), author="test"))


def test_a_list_of_which_a_service_knows_nothing_may_become_smaller(world: World) -> None:
    """As at the first write after a start, or in a service that does not keep the domain."""
    world.put("red", ports(30, 30))
    new = Control(world.store, Compiler(Metrics()), Publisher(), ceilings=Ceilings(500, 800))
    try:
        new.write(lambda unit: unit.acls.replace("red", ports(29, 30), author="test"))
    finally:
        new.stop()


def test_a_quota_is_held_against_what_another_service_left(world: World) -> None:
    world.put("red", ports(12, 12))
    with remembering(world, world.control.ceilings) as stale:
        world.put("red", ports(2, 2))
        world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(flows=50)))
        with pytest.raises(TooLarge, match="the quota is 50"):
            stale.write(lambda unit: unit.acls.replace("red", addresses(100), author="test"))
        world.put("blue", ports(3, 3))
        stale.write(lambda unit: unit.acls.replace("red", addresses(40), author="test"))


def addresses(count: int) -> Acl:
    """A list of one rule of which no estimate tells how many flow entries it needs at least."""
    many = [f"192.0.{2 * each >> 8}.{2 * each & 255}" for each in range(count)]
    return acl_from_json({"rules": [{"id": "many", "action": "permit", "protocol": "tcp", "source": many}]})


def test_writes_that_are_carried_out_together_are_held_against_the_list_before_them(world: World) -> None:
    world.put("red", addresses(1))
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=3)))

    def grow_and_shrink(unit: Unit) -> None:
        unit.acls.replace("red", ports(1, 1, also=4), author="test")
        unit.acls.delete_rule("red", "p0", author="test")

    with pytest.raises(TooLarge, match="would have 4 rules, and the quota is 3"):
        world.control.write(grow_and_shrink)
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=None)))
    world.put("red", ports(1, 1, also=6))
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=3)))
    world.control.write(grow_and_shrink)


@pytest.fixture(params=[1, 2])
def forgetful(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world that keeps few versions of lists."""
    made = World(tmp_path, StoreSettings(versions_kept=request.param))
    yield made
    made.control.stop()
    made.store.close()


def test_a_list_over_its_quota_may_become_smaller_where_few_versions_are_kept(forgetful: World) -> None:
    """Whether the version that it is compared with is forgotten by its own write, or by those carried out with it."""
    world = forgetful
    world.put("red", ports(1, 1, also=9))
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=3)))
    with pytest.raises(TooLarge, match="would have 11 rules, and the quota is 3"):
        world.put("red", ports(1, 1, also=10))
    world.put("red", ports(1, 1, also=8))

    def shrink(unit: Unit) -> None:
        for each in range(6):
            unit.acls.delete_rule("red", f"p{each}", author="test")

    world.control.write(shrink)
    with pytest.raises(TooLarge, match="would have 4 rules, and the quota is 3"):
        world.put("red", ports(1, 1, also=3))


def test_a_quota_that_is_certainly_exceeded_is_told_before_compiling(world: World) -> None:
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(flows=100)))
    world.put("red", ports(5, 5))
    asked = world.compiler.asked
    with pytest.raises(TooLarge, match="the quota is 100"):
        world.put("red", ports(11, 11))
    assert world.compiler.asked == asked


def test_a_quota_of_rules_is_held_before_compiling(world: World) -> None:
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=3)))
    asked = world.compiler.asked
    with pytest.raises(TooLarge, match="would have 4 rules, and the quota is 3"):
        world.put("red", ports(1, 1, also=3))
    assert world.compiler.asked == asked


def test_a_list_that_is_put_over_its_quota_of_rules_gets_no_turn(world: World) -> None:
    world.put("red", ports(1, 1, also=5))
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(rules=3)))

    def put(acl: Acl) -> None:
        puts = world.control.ceilings.check_list(acl)
        world.control.carry_out(lambda unit: turns.append(unit.acls.replace("red", acl, author="test")), payer="red",
                                puts=puts)  # fmt: skip

    turns: list[object] = []
    with pytest.raises(TooLarge, match="would have 7 rules, and the quota is 3") as refused:
        put(ports(1, 1, also=6))
    assert (refused.value.place, turns) == ("tenants[red].acl.rules", [])
    put(ports(1, 1, also=4))  # over it, and smaller than before
    assert len(turns) == 1
    with pytest.raises(TooLarge, match="would have 6 rules"):
        put(ports(1, 1, also=5))


def test_a_list_that_is_certainly_over_its_quota_of_flow_entries_gets_no_turn(world: World) -> None:
    world.put("red", ports(12, 12))
    world.control.write(lambda unit: unit.tenants.set_quota("red", Quota(flows=100)))
    turns: list[object] = []

    def put(acl: Acl) -> None:
        puts = world.control.ceilings.check_list(acl)
        world.control.carry_out(lambda unit: turns.append(unit.acls.replace("red", acl, author="test")), payer="red",
                                puts=puts)  # fmt: skip

    with pytest.raises(TooLarge, match="the quota is 100") as refused:
        put(ports(13, 13))
    assert (refused.value.place, turns) == ("tenants[red].acl.rules[0]", [])
    put(ports(11, 11))  # over it, and smaller than before
    assert len(turns) == 1
    with pytest.raises(TooLarge, match="the quota is 100"):
        put(ports(12, 12))
    assert len(turns) == 1


def test_a_list_whose_turn_may_take_long_is_known_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_FLOWS", 1_000)
    few, many = (acl_from_json({"rules": [plain(each) for each in range(rules)]}) for rules in (900, 1_100))
    assert not takes_long(Ceilings().check_list(few))
    assert takes_long(Ceilings().check_list(many))


def plain(number: int) -> dict[str, object]:
    return {"id": f"p{number}", "action": "permit", "protocol": "tcp", "source": f"192.0.2.{number % 250}"}


def test_what_a_request_brings_is_held_without_a_turn() -> None:
    ceilings = Ceilings(1_000, 1_500)
    ceilings.check_list(ports(30, 30))
    ceilings.check_rule(ports(30, 30).rules[0])
    with pytest.raises(TooLarge, match="rule 'wide' may need 1023 flow entries"):
        ceilings.check_rule(ports(31, 33).rules[0])
    with pytest.raises(TooLarge, match="may need") as refused:
        ceilings.check_list(ports(31, 33, also=1))
    assert refused.value.place == "rules[1]"

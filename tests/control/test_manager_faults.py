"""Faults under the manager of firewall servers: what cannot be made is refused or tried again, and others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from control.pop_site import SERVERS, TENANTS, Site, pairs_at, served_prefixes
from patience import until

from orchestrator.compile.servers import tenants as servedtenants
from orchestrator.compile.servers.programs import PEERS, Ask, ServerCompiler
from orchestrator.control.pops import manager
from orchestrator.control.pops.manager import Unmade, key_of
from orchestrator.errors import Busy, TooLarge, Unreachable

_TURNS = ("firewall servers wait for the store", "firewall servers' turn failed")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(f"sqlite:///{tmp_path}/test.db")
    made.begin()
    yield made
    made.close()


def test_what_servers_cannot_hold_is_refused_and_nothing_changes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.settle()
    generation = site.generation

    def refuses(*_: object) -> None:
        raise TooLarge("too large for a server", place="rules[0]")

    monkeypatch.setattr(servedtenants, "taken_out", refuses)
    monkeypatch.setattr(servedtenants.Served, "follow_list", lambda _, __: None)
    with pytest.raises(TooLarge, match=r"tenants\[t1\].acl: rules\[0\]: too large|tenants\[t1\]"):
        site.set_list(1, 7)
    assert site.generation == generation
    assert sum(pairs_at(site.program(server)) for server in SERVERS) == 0


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

    monkeypatch.setattr(site.control.tiers.servers, "_enforced", enforced)
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


def test_what_cannot_be_told_while_the_store_is_away_is_told_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set_list(4, 1)
    site.rest()
    mine = next(server for server in SERVERS if "10.4.0.0/24" in served_prefixes(site.program(server)))
    away = [Unreachable("the database does not answer"), Busy("another writer holds it")]

    def tells(unmade: Unmade) -> None:
        if away:
            raise away.pop(0)
        site.told.append(unmade)

    monkeypatch.setattr(site.control.tiers.servers, "_tells", tells)
    _refusing(monkeypatch, mine, TooLarge("so many rows"))
    logger = structlog.testing.CapturingLogger()  # whatever level others have set
    monkeypatch.setattr(manager, "log", logger)
    site.set_list(4, 1, 2)
    until(lambda: site.told == [Unmade("d1", mine, "so many rows")])
    said = [(each.method_name, each.kwargs.get("error")) for each in logger.calls if each.args[0] in _TURNS]
    assert said == [("warning", "the database does not answer"), ("warning", "another writer holds it")]

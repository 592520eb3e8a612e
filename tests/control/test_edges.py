"""The edge tier at work: a PoP's places, lines and heavy hitters follow the policy, in one transaction with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from patience import until

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lifting.edgeheavy import TO_WAN
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.gauges import EdgeMetrics
from orchestrator.control.metrics import Metrics
from orchestrator.control.pops import edges
from orchestrator.control.pops.heavy import choose
from orchestrator.control.pops.traffic import pop_traffic
from orchestrator.control.publisher import Publisher
from orchestrator.control.tiers import Tiers
from orchestrator.edge.chunks import Places
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.upkeep import standing_of
from orchestrator.errors import BadPolicy, Conflict, NotFound, TooLarge
from orchestrator.placement.heavy import HeavySettings
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Endpoint, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.countframes import CountFrame
from orchestrator.program.counts import Counts
from orchestrator.program.flows import Flow
from orchestrator.program.program import Program, Tier
from orchestrator.store import Store, open_store
from orchestrator.store.pops.poprecords import NewServer, PopSettings, ServerState
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

LAID_OUT = PopSettings(("outside",), EdgeSettings(functions=8), HeavySettings(0.0, least_packets=10))
WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
BLOCKED = Rule(
    RuleId("blocked"), Action.DENY, protocol=TCP, source=Addresses((Prefix.parse("192.0.2.0/24"),)),
    destination_ports=(PortRange(80, 80),),
)  # fmt: skip


class Site:
    """A service's writing side with two tenants and a PoP."""

    def __init__(self, store: Store) -> None:
        self.tiers = Tiers()
        self.control = Control(store, Compiler(Metrics()), Publisher(), tiers=self.tiers)
        self.control.start()

    def write(self, work: object) -> object:
        return self.control.write(work)  # type: ignore[arg-type]

    @property
    def program(self) -> Program:
        found = self.tiers.publisher(Tier.EDGE).program("d1")
        assert found is not None
        return found

    def rows(self, table: EdgeTable) -> list[Flow]:
        return [flow for flow in self.program.flows.rows() if flow.table == table]

    def numbers(self, table: EdgeTable, kind: Kind) -> set[int]:
        """The numbers in the cookies of rows of a kind."""
        cookies = [Cookie.unpack(flow.cookie) for flow in self.rows(table)]
        return {cookie.number for cookie in cookies if cookie is not None and cookie.kind is kind}


@pytest.fixture
def site(tmp_path: object) -> Iterator[Site]:
    store = open_store(f"sqlite:///{tmp_path}/test.db")
    found = Site(store)

    def begin(unit: Unit) -> None:
        unit.domains.create("d1")
        for tenant, prefix in (("shop", "198.51.100.0/25"), ("bank", "203.0.113.0/25")):
            unit.tenants.create(tenant, name=tenant, domain="d1", prefixes=(Prefix.parse(prefix),))
        unit.domains.put_endpoint(
            "d1", Endpoint("web1", TenantId("shop"), "web1", 0x0AAC00000001, (Prefix.parse("198.51.100.10/32"),))
        )
        unit.acls.replace("shop", Acl((BLOCKED, WEB)), author="test")

    found.write(begin)
    found.write(lambda unit: unit.pops.add("p1", "d1", LAID_OUT))
    yield found
    found.control.stop()
    store.close()


def with_servers(site: Site, *names: str) -> None:
    for number, name in enumerate(names, 1):
        server = NewServer(name, f"to-{name}", 0x0AAC1F040000 + number)
        site.write(lambda unit, server=server: unit.pops.add_server("p1", server))


def test_without_servers_everything_from_outside_is_dropped(site: Site) -> None:
    assert not site.rows(EdgeTable.EXCEPTIONS)[1:]
    assert len(site.rows(EdgeTable.LINES)) == 1
    assert site.control.edge_report("d1") is not None


def test_tenants_get_servers_and_lines_with_the_first_server(site: Site) -> None:
    with_servers(site, "fs1")
    assert site.numbers(EdgeTable.LINES, Kind.LINE) == {1}
    pop = site.control.read(lambda unit: unit.pops.get("p1"))
    assert set(pop.places.values()) == {1}
    assert len(pop.places) == 2


def test_a_lost_servers_tenants_are_elsewhere_in_the_same_generation(site: Site) -> None:
    with_servers(site, "fs1", "fs2")
    site.write(lambda unit: unit.pops.place("p1", {"shop": "fs1", "bank": "fs2"}))
    assert set(site.control.read(lambda unit: unit.pops.get("p1")).places.values()) == {1, 2}
    generation = site.write(lambda unit: unit.pops.set_server_state("p1", "fs1", ServerState.LOST))
    assert site.program.generation == generation
    assert set(site.control.read(lambda unit: unit.pops.get("p1")).places.values()) == {2}
    events = site.control.read(lambda unit: [each.kind for each in unit.events.since(0).events])
    assert {"pop.server", "pop.moved"} <= set(events)


def test_a_removed_servers_number_leaves_the_program(site: Site) -> None:
    with_servers(site, "fs1", "fs2")
    site.write(lambda unit: unit.pops.place("p1", {"shop": "fs1", "bank": "fs1"}))
    site.write(lambda unit: unit.pops.remove_server("p1", "fs1"))
    assert site.numbers(EdgeTable.LINES, Kind.LINE) | site.numbers(EdgeTable.EXCEPTIONS, Kind.EXCEPTION) == {2}
    server = site.write(lambda unit: unit.pops.add_server("p1", NewServer("fs3", "to-fs3", 0x0AAC1F040009)))
    assert server.number == 3  # type: ignore[attr-defined]


def test_a_new_tenant_is_reached_at_once_and_no_line_moves(site: Site) -> None:
    with_servers(site, "fs1")
    before = site.rows(EdgeTable.LINES)
    site.write(
        lambda unit: unit.tenants.create("cafe", name="Cafe", domain="d1", prefixes=(Prefix.parse("192.0.2.0/24"),))
    )  # fmt: skip
    assert site.rows(EdgeTable.LINES) == before
    assert site.numbers(EdgeTable.EXCEPTIONS, Kind.EXCEPTION) == {1}


def test_what_does_not_fit_is_refused_with_its_place_and_changes_nothing(site: Site) -> None:
    with_servers(site, "fs1")
    before = site.program
    small = replace(LAID_OUT, edge=EdgeSettings(functions=8, per_line=1, most_lines=1, most_exceptions=0))
    with pytest.raises(TooLarge, match="entries for 1") as caught:
        site.write(lambda unit: unit.pops.set_settings("p1", small))
    assert caught.value.place == "pops[p1].most_lines"
    assert site.program is before
    assert site.control.read(lambda unit: unit.pops.get("p1")).settings == LAID_OUT
    wide = replace(LAID_OUT, edge=EdgeSettings(ipv4_chunk=32))
    site.write(lambda unit: unit.pops.set_settings("p1", wide))
    assert site.program.generation > before.generation


def test_a_refused_change_leaves_lines_that_the_database_does_not_know_of_behind(site: Site) -> None:
    """What was compiled for a transaction that failed is not taken for what stands."""
    with_servers(site, "fs1")

    def fails(unit: Unit) -> None:
        unit.tenants.create("cafe", name="Cafe", domain="d1", prefixes=(Prefix.parse("192.0.2.0/24"),))
        unit.acls.replace("bank", Acl((replace(WEB, id=RuleId("x")),)), author="test")

    class Stop(Exception):
        pass

    original = site.tiers.compile

    def compiled(unit: Unit, domain: str, snapshot: object) -> object:
        original(unit, domain, snapshot)  # type: ignore[arg-type]
        raise Stop

    site.tiers.compile = compiled  # type: ignore[assignment, method-assign]
    with pytest.raises(Stop):
        site.write(fails)
    site.tiers.compile = original  # type: ignore[method-assign]
    site.write(fails)
    record = site.control.read(lambda unit: unit.pops.lines("p1", Family.IPV4))
    assert record is not None
    assert Prefix.parse("192.0.2.0/24").network >> 8 in standing_of(record.body).key.tolist()


def test_a_restart_publishes_the_same_program(site: Site, tmp_path: object) -> None:
    with_servers(site, "fs1", "fs2")
    site.write(lambda unit: unit.tenants.delete("bank"))
    before = site.program
    store = open_store(f"sqlite:///{tmp_path}/test.db")
    again = Site(store)
    try:
        until(lambda: again.tiers.publisher(Tier.EDGE).program("d1") is not None)
        assert again.program.digest == before.digest
    finally:
        again.control.stop()
        store.close()


def counted(site: Site, rule: str, packets: int, tier: Tier = Tier.HOST) -> None:
    """Have a host tell that a rule decided packets."""

    def work(unit: Unit) -> None:
        numbers = unit.domains.policy("d1").policy.tenants[1].rule_numbers
        if not unit.domains.hosts("d1"):
            unit.domains.add_host("d1", HostRecord("h1", 0x1, "up"))
        claim = unit.counting.claim("d1", "h1", 1)
        cookie = np.array([Cookie(tier, Kind.RULE, numbers[RuleId(rule)]).pack()], np.uint64)
        one = np.array([packets], np.int64)
        now = np.array([int(unit.now.timestamp() * 1e6)], np.int64)
        counts = Counts(cookie, one, one * 100, one * 0, now)
        unit.counting.take("d1", 1, [CountFrame("h1", claim.sequence + 1, counts, (), b"", True)])

    site.write(work)


def test_popular_rules_go_past_the_servers_and_what_is_denied_does_not(site: Site) -> None:
    with_servers(site, "fs1")
    counted(site, "web", 5000)
    chosen = choose(site.control, "p1")
    assert [str(each.rule) for each in chosen or ()] == ["shop/web"]
    heavy = [flow for flow in site.rows(EdgeTable.HEAVY) if flow.priority]
    assert any(flow.instructions == TO_WAN for flow in heavy)
    assert {flow.instructions for flow in heavy if flow.instructions != TO_WAN} <= {b"\0\1\0\x08\x14\0\0\0"}
    report = site.control.edge_report("d1")
    assert report is not None
    assert [lift.form is not None for lift in report.heavy.lifts] == [True]
    site.write(lambda unit: unit.acls.replace("shop", Acl(()), author="test"))
    assert not [flow for flow in site.rows(EdgeTable.HEAVY) if flow.instructions == TO_WAN]


def test_the_budget_of_heavy_hitters_is_kept(site: Site) -> None:
    with_servers(site, "fs1")
    none = replace(LAID_OUT, edge=replace(LAID_OUT.edge, most_heavy=0))
    site.write(lambda unit: unit.pops.set_settings("p1", none))
    counted(site, "web", 5000)
    assert choose(site.control, "p1") == ()


def test_traffic_tells_the_ways_apart(site: Site) -> None:
    with_servers(site, "fs1")
    counted(site, "web", 30, Tier.EDGE)
    counted(site, "web", 10, Tier.SERVER)
    traffic = site.control.read(lambda unit: pop_traffic(unit, "p1"))
    assert {str(rule): each.packets for rule, each in traffic.heavy.items()} == {"shop/web": 30}
    assert traffic.tenants["shop"].bypass_share == 0.75
    assert traffic.tenants["bank"].bypass_share is None
    assert traffic.servers["fs1"].tenants == ("bank", "shop")


def test_what_hosts_count_is_a_tenants_traffic_when_it_is_placed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Mapping[int, float]] = []
    whole = edges.settle_tenants

    def noted(*asked: Any) -> Places:
        seen.append(asked[-1])
        return whole(*asked)

    monkeypatch.setattr(edges, "settle_tenants", noted)
    with_servers(site, "fs1")
    counted(site, "web", 5000)
    with_servers_too = NewServer("fs2", "to-fs2", 0x0AAC1F040002)
    site.write(lambda unit: unit.pops.add_server("p1", with_servers_too))
    numbers = {
        each.id: each.number for each in site.control.read(lambda unit: unit.domains.policy("d1")).policy.tenants
    }
    assert seen[0] == {}
    assert seen[-1][numbers[TenantId("shop")]] > 0
    assert seen[-1][numbers[TenantId("bank")]] == 0


def test_names_ports_and_switches_are_each_ones_own(site: Site) -> None:
    with_servers(site, "fs1")
    with pytest.raises(Conflict, match="already has a server"):
        site.write(lambda unit: unit.pops.add_server("p1", NewServer("fs1", "other", 2)))
    with pytest.raises(Conflict, match="leads to 'fs1'"):
        site.write(lambda unit: unit.pops.add_server("p1", NewServer("fs2", "to-fs1", 2)))
    taken = site.control.read(lambda unit: unit.pops.get("p1")).servers[0].mac
    with pytest.raises(Conflict, match="that of 'fs1'") as refused:
        site.write(lambda unit: unit.pops.add_server("p1", NewServer("fs2", "to-fs2", taken)))
    assert refused.value.place == "mac"
    with pytest.raises(Conflict, match="has a PoP already"):
        site.write(lambda unit: unit.pops.add("p2", "d1", LAID_OUT))
    site.write(lambda unit: unit.pops.add_edge("p1", HostRecord("e1", 0xE1, "wan")))
    with pytest.raises(Conflict, match="onboarded already"):
        site.write(lambda unit: unit.domains.add_host("d1", HostRecord("h9", 0xE1, "up")))
    assert site.control.read(lambda unit: unit.domains.hosts("d1")) == ()
    assert site.control.read(lambda unit: unit.firewalls.list("d1")) == ()
    with pytest.raises(Conflict, match="still has edge switches"):
        site.write(lambda unit: unit.pops.remove("p1"))
    site.write(lambda unit: unit.pops.remove_edge("p1", "e1"))
    site.write(lambda unit: unit.pops.remove("p1"))
    with pytest.raises(NotFound):
        site.control.read(lambda unit: unit.pops.get("p1"))


def test_prometheus_is_told_what_stands(site: Site) -> None:
    with_servers(site, "fs1")
    metrics = Metrics()
    metrics.registry.register(EdgeMetrics(site.tiers.edges.reports))
    text = metrics.text().decode()
    assert 'aclflow_edge_chunks{domain="d1",family="ipv4"} 2.0' in text
    assert 'aclflow_edge_lines{domain="d1",family="ipv4"} 1.0' in text
    assert 'aclflow_edge_misdirected{domain="d1",family="ipv6"} 0.0' in text
    assert 'aclflow_edge_heavy_entries{domain="d1"} 0.0' in text


def test_tenants_that_own_the_same_address_are_refused_by_name(site: Site) -> None:
    with pytest.raises((BadPolicy, Conflict)):
        site.write(
            lambda unit: unit.tenants.create(
                "thief", name="Thief", domain="d1", prefixes=(Prefix.parse("198.51.100.0/26"),)
            )
        )

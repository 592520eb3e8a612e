"""The manager of firewall servers: the right share for each, moves without a gap, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from control.pop_site import SERVERS, SETTINGS, TENANTS, Site, pairs_at, served_prefixes
from patience import until

from orchestrator.compile.filters.cacherows import CLASSIFIER
from orchestrator.compile.servers.programs import PEERS, Ask, ServerCompiler
from orchestrator.control.pops.manager import key_of
from orchestrator.errors import NotFound
from orchestrator.policy.model import TenantId
from orchestrator.policy.prefilter import Misdirect
from orchestrator.store.pops.poprecords import NewServer, ServerState


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(f"sqlite:///{tmp_path}/test.db")
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
    assert {each.host for each in site.control.tiers.servers.vouched_reports("d1")} <= {*SERVERS} - {second}


def test_rows_for_classifiers_come_and_go_with_the_setting(site: Site) -> None:
    site.set_list(1, 1, 2)
    site.rest()
    digests = {server: site.program(server).digest for server in SERVERS}
    for wanted in (True, False):
        laid_out = replace(SETTINGS, classify=wanted)
        site.control.write(lambda unit, laid_out=laid_out: unit.pops.set_settings("p1", laid_out))
        site.settle()
        counts = [int((site.program(server).flows.table == CLASSIFIER).sum()) for server in SERVERS]
        assert sum(counts) == (TENANTS * 4 + 2 if wanted else 0)  # each its default, and three kinds of return traffic
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
    return await site.control.watches.watch("d1", None, 5.0, stored_generation=site.generation, server=server)


def test_a_server_watches_its_own_program(site: Site) -> None:
    site.settle()
    answer = asyncio.run(_watch(site, "fs2"))
    assert answer is not None
    assert answer.digest == site.program("fs2").digest  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match="no firewall server 'nobody'"):
        asyncio.run(_watch(site, "nobody"))

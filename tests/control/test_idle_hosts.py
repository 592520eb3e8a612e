"""The hosts' program of a domain that firewall servers alone enforce: left alone, and there as soon as it is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from control.pop_site import SERVERS, Site
from patience import until

from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.control.duties import IdleHosts
from orchestrator.errors import TooLarge
from orchestrator.policy.model import Acl
from orchestrator.program.program import Program
from orchestrator.store.records import HostRecord, PolicySnapshot, Quota
from orchestrator.store.unit import Unit

HOST = HostRecord("h1", 0xA1, "up0")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(f"sqlite:///{tmp_path / 'store.db'}")
    made.begin()
    yield made
    made.close()


def hosts(site: Site) -> Program:
    program = site.control.publisher.program("d1")
    assert program is not None
    return program


def usage(site: Site) -> int | None:
    return site.control.flows_of("d1", site.control.read(lambda unit: unit.tenants.get("t1").number))


def watched(site: Site) -> int:
    answer = asyncio.run(site.control.watches.watch("d1", None, 60.0, stored_generation=site.generation))
    assert answer is not None
    return answer.generation


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no list is one that hosts can hold."""

    def too_large(*_: object, **__: object) -> None:
        raise TooLarge("more levels than there are priorities", place="rules[0]")

    monkeypatch.setattr(TenantList, "of", too_large)
    monkeypatch.setattr(TenantList, "update_list", too_large)


def test_a_change_leaves_the_hosts_program_alone_where_there_is_no_host(site: Site) -> None:
    before = hosts(site).generation
    site.set_list(1, 1, 2)
    assert hosts(site).generation == before < site.generation
    assert usage(site) is None
    site.settle()
    assert any(site.program(server).generation == site.generation for server in SERVERS)


def test_the_first_host_finds_the_newest_program(site: Site) -> None:
    site.set_list(1, 1, 2)
    before = site.generation
    due = site.control.write(lambda unit: unit.domains.add_host("d1", HOST))
    assert hosts(site).generation == site.generation == due == before + 1
    assert usage(site) == 2 + 10  # and its defaults and return traffic
    site.set_list(1, 1, 2, 3)
    assert hosts(site).generation == site.generation
    second = site.control.write(lambda unit: unit.domains.add_host("d1", HostRecord("h2", 0xA2, "up0")))
    assert second == site.generation == hosts(site).generation == due + 2


def test_a_host_whose_domain_has_lists_that_no_host_holds_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch)
    site.set_list(1, 1, 2)
    before = site.generation
    with pytest.raises(TooLarge) as refused:
        site.control.write(lambda unit: unit.domains.add_host("d1", HOST))
    assert refused.value.place == "tenants[t1].acl.rules[0]"
    assert site.generation == before
    assert site.control.read(lambda unit: unit.domains.hosts("d1")) == ()


def test_who_follows_the_hosts_program_gets_the_newest_and_every_one_after_it(site: Site) -> None:
    site.set_list(1, 1, 2)
    assert watched(site) == site.generation
    site.set_list(1, 1, 2, 3)
    assert hosts(site).generation == site.generation


def test_who_comes_while_a_change_is_under_way_misses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(unit: Unit) -> None:
        unit.acls.replace("t2", Acl(), author="test")

    site.set_list(2, 1)
    is_idle = IdleHosts.is_idle

    def then_followed(idle: IdleHosts, unit: Unit, domain: str, snapshot: PolicySnapshot) -> bool:
        found = is_idle(idle, unit, domain, snapshot)
        idle.follow(domain)
        return found

    monkeypatch.setattr(IdleHosts, "is_idle", then_followed)
    site.control.write(work)
    until(lambda: hosts(site).generation == site.generation)


def test_a_quota_is_held_where_there_is_no_host(site: Site) -> None:
    site.set_list(1, 1, 2, 3, 4, 5)
    site.control.write(lambda unit: unit.tenants.set_quota("t1", Quota(None, 12)))
    with pytest.raises(TooLarge):
        site.set_list(1, 1, 2, 3, 4, 5, 6)
    site.set_list(1, 1, 2, 3, 4)  # still over it, but smaller than it was
    assert hosts(site).generation == site.generation


def test_a_domain_that_is_no_more_is_forgotten(site: Site) -> None:
    site.set_list(1, 1)
    site.control.delete_domain("d1", lambda unit: None)
    assert not site.control.idle_hosts.is_behind("d1")

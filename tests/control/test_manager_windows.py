"""How often the manager of firewall servers sends: a lone change at once, many for the price of few, none lost."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from control.pop_site import SERVERS, TENANTS, Site, pairs_at
from patience import PATIENCE_S

from orchestrator.control.pops.manager import key_of
from orchestrator.errors import TooOften


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/test.db"


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
    vouched = {each.host: each for each in site.control.tiers.servers.vouched_reports("d1")}
    assert vouched.keys() == set(SERVERS) - {touched}
    for server, point in vouched.items():
        assert (point.generation, point.digest) == (site.generation, before[server].digest)
    site.set_list(3)  # the touched one has not said yet that it holds the one before
    assert touched not in {each.host for each in site.control.tiers.servers.vouched_reports("d1")}
    site.close()


def test_where_nobody_is_vouched_for_every_server_is_asked(url: str) -> None:
    """As where several services share a database: a server that was not asked would never be known to hold it."""
    site = Site(url, window_s=60.0, vouches=False)
    site.begin()
    site.hold_all()
    before = {server: site.program(server) for server in SERVERS}
    site.set_list(3, 1)
    assert {site.program(server).generation for server in SERVERS} == {site.generation}
    assert site.control.tiers.servers.vouched_reports("d1") == ()
    assert sum(site.program(server).digest != before[server].digest for server in SERVERS) == 1
    site.close()


def test_what_is_due_stays_so_until_its_program_can_be_made(url: str) -> None:
    """Else who took it would send, after all, what another thread has sent meanwhile and the server holds already."""
    site = Site(url, window_s=60.0)
    site.begin()
    site.hold_all()
    manager, key = site.control.tiers.servers, key_of("d1", SERVERS[0])
    # Nothing public shows whether a thread took what is due before it had the domain's lock.
    known = manager._domains["d1"]
    with known.lock:
        manager._note(known.goal, [key])
        other = threading.Thread(target=manager._serve_due, args=([key],))
        other.start()
        other.join(0.2)
        assert manager._windows.due == [key]
    other.join(PATIENCE_S)
    assert manager._windows.due == []
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
    assert site.stopped_s is not None
    site.stopped_s += 0.4  # which fills the bucket by one
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
    assert any(site.at(server) < generation for server in SERVERS)
    site.close()
    successor = Site(url)
    successor.rest()
    assert sum(pairs_at(successor.program(server)) for server in SERVERS) == 3
    successor.close()

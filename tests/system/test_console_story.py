"""The console before a lab with real packets: what somebody who never read a page of ours would do, in Chromium.

A member of the project imports the list that they have, looks at what is odd about it, commits it, sees each host turn
green and hits move, finds out why a packet is dropped and lets it in, takes that back; is shown nothing of another
project; and goes on when the service was away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from chromium import chromium
from playwright.sync_api import Browser, Page, expect
from system.shooting import F4, POP, SYN, packet
from system.visiting import COMPLETE, WITHIN_MS, WITHIN_S, Visitor

from orchestrator.client import Client
from orchestrator.lab import pop
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl, Packet, TenantId
from orchestrator.policy.protocols import TCP

LIST = """*filter
:FORWARD DROP [0:0]
-A FORWARD -s 192.0.2.0/24 -d 198.51.100.20/32 -p tcp -m tcp --dport 22 -j DROP
-A FORWARD -d 198.51.100.10/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A FORWARD -s 192.0.2.10/32 -d 198.51.100.20/32 -p tcp -m tcp --dport 22 -j ACCEPT
COMMIT
"""
"""What the shop has so far: its last line never decides, for the first takes all its packets."""
WEB, SSH = (packet("alice", name, F4, TCP, 40000, port, tcp_flags=SYN) for name, port in (("web1", 80), ("db1", 22)))


@dataclass
class Town:
    """The lab, its control plane, the console's address, and a member of the shop."""

    lab: Lab
    plane: ControlPlane
    console: str
    admin: Client
    member: str

    def arrives(self, said: Packet, where: str, times: int = 1) -> bool:
        """Send a packet from alice, and see whether it gets there."""
        with Wire(self.lab, ["alice", where]) as wire:
            landed = wire.fire([shot(self.lab, "alice", said) for _ in range(times)])
        assert len({each.nodes for each in landed}) == 1
        return landed[0].nodes == (where,)


@pytest.fixture(scope="module")
def town(layout: Layout) -> Iterator[Town]:
    lab = pop.up(layout, POP)
    plane = ControlPlane(lab)
    plane.start({TenantId("shop"): Acl(), TenantId("bank"): Acl()})
    with plane.client() as admin:
        _, member = admin.tokens.create("member", tenant="shop", description="shop's engineer")
        console = plane.start_console().partition("/login")[0]
        yield Town(lab, plane, console, admin, member)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def visitor(town: Town, browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor.comes(browser, town.console)
    visitor.page.on(
        "request", lambda request: visitor.complaints.append(request.url) if is_outside(town, request.url) else None
    )
    visitor.sign_in(town.member)
    yield visitor
    assert visitor.complaints == []


def is_outside(town: Town, url: str) -> bool:
    return not url.startswith((town.console, town.console.replace("http://", "ws://"), "data:", "blob:"))


def number(page: Page, tile: str) -> str:
    """What a tile of the overview shows."""
    return page.locator(".tile", has_text=tile).locator(".value").inner_text()


def test_a_list_of_their_own_is_brought_in_looked_at_and_enforced(town: Town, visitor: Visitor) -> None:
    page = visitor.page
    assert not town.arrives(WEB, "web1")  # nothing gets in until a rule permits it
    page.get_by_role("link", name="Access list").click()
    visitor.sees("No rules yet")
    visitor.presses("Import")
    page.set_input_files("input[type=file]", [{"name": "fw.save", "mimeType": "text/plain", "buffer": LIST.encode()}])
    visitor.presses("Put into the draft")
    visitor.presses("Review and commit")
    visitor.sees("Newly permitted")
    visitor.sees("Never decides: rules before it take all its packets")
    visitor.presses("Commit")
    visitor.sees("In force on every host")
    visitor.presses("Done")
    assert town.arrives(WEB, "web1")
    page.get_by_role("link", name="Check", exact=True).click()
    visitor.sees("shadowed")


def test_hits_move_while_somebody_looks(town: Town, visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/project/shop")
    before = number(page, "Permitted")
    page.evaluate("window.stays = true")
    assert town.arrives(WEB, "web1", times=30)
    deadline = time.monotonic() + WITHIN_S
    while number(page, "Permitted") == before:
        assert time.monotonic() < deadline, "the hits do not move"
        page.wait_for_timeout(200)
    expect(page.get_by_role("img", name="permitted 0 packets/s now, 0 packets/s at most")).to_have_count(
        0, timeout=WITHIN_MS
    )
    assert page.evaluate("window.stays"), "the page was loaded again"


def test_why_a_packet_is_dropped_is_found_out_and_changed(town: Town, visitor: Visitor) -> None:
    page = visitor.page
    assert not town.arrives(SSH, "db1")
    visitor.open("/project/shop")
    for label, value in {"From address": "192.0.2.10", "To address": "198.51.100.20", "To port": "22"}.items():
        page.get_by_label(label).fill(value)
    visitor.presses("Find out")
    visitor.sees("Denied: rule")
    visitor.sees("host, in the list")
    visitor.presses("Permit such packets")
    visitor.presses("Keep in draft")
    visitor.commits()
    assert town.arrives(SSH, "db1")


def test_it_is_taken_back(town: Town, visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/project/shop/history")
    page.locator(".panel", has_text="Version 1").get_by_role("button", name="Roll back to it").click()
    visitor.sees("the whole list, from version 1")
    visitor.commits()
    assert not town.arrives(SSH, "db1")
    assert town.arrives(WEB, "web1")


def test_another_projects_data_are_not_shown(visitor: Visitor) -> None:
    for path in ("/project/bank", "/project/bank/acl", "/project/bank/trace", "/project/bank/packets"):
        visitor.open(path)
        visitor.sees("there is no project 'bank'")


def test_a_service_that_was_away_is_told_of_and_the_page_goes_on(town: Town, visitor: Visitor) -> None:
    visitor.open("/project/shop")
    town.lab.kill(SERVICE)
    banner = visitor.page.get_by_role("alert").filter(has_text="does not answer")
    expect(banner).to_be_visible(timeout=WITHIN_MS)
    town.plane.start_service()
    expect(banner).to_be_hidden(timeout=WITHIN_MS)
    before = number(visitor.page, "Permitted")
    assert town.arrives(WEB, "web1", times=20)
    deadline = time.monotonic() + WITHIN_S
    while number(visitor.page, "Permitted") == before:
        assert time.monotonic() < deadline, "the page does not go on"
        visitor.page.wait_for_timeout(200)


def test_the_operator_sees_each_host_turn_green(town: Town, browser: Browser) -> None:
    operator = Visitor.comes(browser, town.console)
    page = operator.page
    operator.sign_in(town.plane.token)
    operator.open("/admin/domains")
    for host in POP.hosts:
        expect(page.get_by_role("row", name=host.name)).to_contain_text("in force", timeout=WITHIN_MS)
    operator.open("/admin/topology")
    expect(page.get_by_role("img", name="2 hosts, 2 tenants")).to_be_visible(timeout=WITHIN_MS)
    operator.open("/project/shop/acl")
    page.get_by_label("More for", exact=False).first.click()
    page.get_by_text("Move down", exact=True).click()
    operator.presses("Review and commit")
    page.wait_for_selector(COMPLETE)
    operator.presses("Commit")
    operator.sees("In force on every host")
    for host in POP.hosts:
        expect(page.get_by_role("dialog")).to_contain_text(host.name)
    expect(page.get_by_role("dialog").get_by_text("in force", exact=True)).to_have_count(len(POP.hosts))

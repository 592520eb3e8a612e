"""A review says in a real browser what of yesterday's recorded packets a draft would newly refuse or permit."""

from __future__ import annotations

import datetime as dt

import pytest
from playwright.sync_api import expect

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Action, Direction, Packet
from orchestrator.policy.protocols import TCP
from orchestrator.store.engine import open_store
from orchestrator.store.packetlog import LoggedPacket

from .conftest import Look, Town, discard

RULES = [
    {"id": name, "action": "permit", "protocol": "tcp", "destination_ports": port, "log": True}
    for name, port in (("web", 443), ("mail", 25))
]


def logged(source: int, hours: int) -> LoggedPacket:
    """A packet of the rule `web` from 192.0.2.`source`, so many hours ago."""
    time = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
    packet = Packet(Family.IPV4, 0xC0000200 + source, 0xC6336414, TCP, 40000, 443, tcp_flags=2)
    return LoggedPacket(time, "shop", "web", Action.PERMIT, Direction.INGRESS, "host1", packet, 60)


@pytest.fixture(scope="module")
def recorded(town: Town) -> Town:
    """The shop has recorded two packets of the last day from one peer, one from another, and one of an earlier day."""
    town.stop_service()
    store = open_store(f"sqlite:///{town.directory / 'aclflow.db'}")
    with store.write() as unit:
        unit.acls.replace("shop", acl_from_json({"rules": RULES}), author="an earlier day")
        unit.packet_log.append("pop", [logged(5, 50), logged(7, 3), logged(7, 2), logged(9, 1)])
    store.close()
    town.start_service()
    return town


def test_a_review_says_what_recorded_traffic_a_draft_refuses(look: Look, recorded: Town) -> None:
    page = look.page
    look.sign_in(recorded.member)
    traffic = page.locator("[data-part=traffic]")
    for rule, says in (
        ("mail", "Of 3 packets that rules with a log recorded in the last 24 hours, none would fare otherwise."),
        ("web", "0 would be newly permitted, 3 newly refused."),
    ):
        look.open("/project/shop/acl")
        page.get_by_label(f"More for {rule}").click()
        page.get_by_text("Delete", exact=True).click()
        page.get_by_role("button", name="Review and commit").click()
        expect(traffic).to_contain_text(says)
        if rule == "web":
            expect(traffic).to_contain_text("ingress: 3 packets newly refused")
            expect(traffic).to_contain_text("to or from 192.0.2.7 (2), 192.0.2.9 (1)")
            expect(traffic).to_contain_text("decided by web before, by the default after")
        look.open("/project/shop/acl")
        discard(page)

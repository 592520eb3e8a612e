"""A tour of the console before a lab that is busy: an edge, firewall servers, hosts, lists and traffic on them.

Every page is opened as an operator, must be complete, show something of what goes on, and have no complaint. The
pictures in docs/console.md are taken here (`make pictures`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from chromium import chromium, keep_picture
from patience import until
from playwright.sync_api import Browser
from rich.console import Console
from system.visiting import COMPLETE, Visitor

from orchestrator.client import Client
from orchestrator.lab import demo, pop, scenes
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import ControlPlane
from orchestrator.policy.formats.native import group_from_json

PAGES = {
    "project-shop": ("/project/shop", "packets/s"),
    "project-shop-acl": ("/project/shop/acl", "web-https"),
    "project-shop-check": ("/project/shop/check", "TCAM slots"),
    "project-shop-hits": ("/project/shop/hits", "ping"),
    "project-shop-packets": ("/project/shop/packets", "192.0.2.66"),
    "project-shop-groups": ("/project/shop/groups", "office"),
    "project-shop-history": ("/project/shop/history", "Version 1"),
    "admin": ("/admin", "Firewall servers and VNFs"),
    "admin-topology": ("/admin/topology", "fs1"),
    "admin-domains": ("/admin/domains", "in force"),
    "admin-placement": ("/admin/placement", "ping"),
    "admin-edge": ("/admin/edge", "fs2"),
    "admin-events": ("/admin/events", "placement"),
    "identity-tenants": ("/identity/tenants", "198.51.100.0/25"),
    "identity-tokens": ("/identity/tokens", "shop's engineer"),
}
"""By the picture's name: where a page is, and what it shows of this lab."""
OFFICE = {"prefixes": ["192.0.2.128/25", "2001:db8:ffff:1::/64"], "description": "where our engineers sit"}
OFTEN = {"algorithm": "paper", "interval_s": 8.0, "upper": 10, "lower": 2}
"""Rules are lifted soon after traffic begins; an interval must be longer than what counts take to come."""
TRAFFIC = {"alice": "0.02", "mallory": "0.1"}
"""Who pings the shop's web server, and how many seconds apart: the one is permitted, the other is not, with a log."""
WEB = "198.51.100.10"


@pytest.fixture(scope="module")
def busy(layout: Layout) -> ControlPlane:
    """The demonstration's lab after its trials, with traffic that goes on."""
    scene = scenes.shipped_scene()
    lab = pop.up(layout, scene.spec)
    plane = ControlPlane(lab)
    plane.start(scene.acls)
    assert demo.try_out(lab, plane, scene, Screen(Console(file=io.StringIO()))).good
    with plane.client() as admin:
        domain = scene.spec.domain
        admin.tokens.create("member", tenant="shop", description="shop's engineer")
        admin.placement.configure(domain, {**admin.placement.read(domain).settings, **OFTEN})
        plane.wait_enforced(admin, admin.groups.put("shop", group_from_json("office", OFFICE)).generation)
        _begin_traffic(lab)
        _wait_for_news(admin, domain)
    return plane


def _begin_traffic(lab: Lab) -> None:
    for who, pause_s in TRAFFIC.items():
        lab.start(f"ping-{who}", ["ping", "-q", "-i", pause_s, WEB], namespace=lab.namespace(who))


def _wait_for_news(admin: Client, domain: str) -> None:
    """Until a rule is lifted, and what its traffic does is in the log and counted."""

    def is_there() -> bool:
        lifted = any(each.lifted for each in admin.placement.read(domain).rules)
        return lifted and bool(admin.packet_log.read("shop"))

    until(is_there)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def visitor(busy: ControlPlane, browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor.comes(browser, busy.start_console().partition("/login")[0])
    visitor.sign_in(busy.token)
    yield visitor
    assert visitor.complaints == []


@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_what_goes_on(visitor: Visitor, name: str) -> None:
    path, said = PAGES[name]
    visitor.open(path)
    visitor.sees(said)
    keep_picture(visitor.page, name)


def test_a_dropped_packet_is_asked_for_permitted_and_committed(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/project/shop")
    for label, value in {"From address": "192.0.2.66", "To address": WEB, "To port": "443"}.items():
        page.get_by_label(label).fill(value)
    visitor.presses("Find out")
    visitor.sees("Denied: rule scanner")
    keep_picture(page, "trace-denied")
    visitor.presses("Permit such packets")
    visitor.presses("Keep in draft")
    visitor.presses("Review and commit")
    visitor.sees("Newly permitted")
    page.wait_for_selector(COMPLETE)
    keep_picture(page, "review")
    visitor.presses("Commit")
    visitor.sees("In force on every host")
    keep_picture(page, "commit")
    visitor.presses("Done")

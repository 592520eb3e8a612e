"""Endpoints by name in rules, typed into the form and into a cell, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from orchestrator.client import Client
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, TenantId

from .conftest import SHOP, Look

WEB1 = Endpoint("web1", TenantId("shop"), "tap1", 0x0A0000000001, (Prefix.parse("198.51.100.17/32"),))


@pytest.fixture
def admin(look: Look) -> Iterator[Client]:
    """An administrator, in whose domain the project has one endpoint for a while."""
    with look.town.client() as client:
        client.acls.put("shop", acl_from_json(SHOP))
        client.domains.put_endpoint("pop", WEB1)
        look.sign_in(look.town.member, "/project/shop/acl")
        yield client
        client.acls.put("shop", acl_from_json(SHOP))
        client.domains.remove_endpoint("pop", "web1")


def test_a_rule_names_an_endpoint_and_follows_its_addresses(look: Look, admin: Client) -> None:
    page = look.page
    page.get_by_role("button", name="New rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="permit").click()
    for label, value in {"Name": "to-web1", "Source": "192.0.2.64/26", "Destination": "web9"}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Keep in draft").click()
    expect(dialog.get_by_text("'web9' is no address, and there is no endpoint of that name")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("web1")
    page.get_by_role("button", name="Keep in draft").click()
    row = page.locator("tbody tr").filter(has_text="to-web1")
    expect(row).to_contain_text("web1")
    expect(row).not_to_contain_text("@endpoint")
    page.get_by_label("Edit to-web1").click()
    expect(page.get_by_label("Destination", exact=True)).to_have_value("web1")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name=re.compile("Done|Go on without waiting")).click()
    assert admin.acls.read_rule("shop", "to-web1").rule.destination.groups == ("endpoint:web1",)
    moved = Endpoint("web1", TenantId("shop"), "tap1", WEB1.mac, (Prefix.parse("198.51.100.18/32"),))
    admin.domains.put_endpoint("pop", moved, etag="*")
    assert admin.acls.read("shop").acl.groups["endpoint:web1"].prefixes == moved.prefixes


@pytest.mark.usefixtures("admin")
def test_a_cell_takes_an_endpoint_by_name(look: Look) -> None:
    page = look.page
    page.get_by_label("Edit destination of dns").click()
    page.get_by_label("destination of dns", exact=True).fill("web1 port 53")
    page.get_by_role("button", name="Keep").click()
    row = page.locator("tbody tr").filter(has_text="dns")
    expect(row).to_contain_text("web1 port 53")
    page.get_by_role("button", name="Discard", exact=True).click()
    page.get_by_role("button", name="Discard all").click()


@pytest.mark.usefixtures("admin")
def test_a_packet_to_an_endpoint_is_traced_by_names(look: Look) -> None:
    """From the overview and on the page of the trace: a machine, and a port by its service."""
    page = look.page
    look.open("/project/shop")
    for label, value in {"From address": "192.0.2.70", "To address": "web1", "To port": "https"}.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Find out").click()
    expect(page.get_by_text("Permitted: rule web-in")).to_be_visible()
    page.get_by_label("Destination address").fill("web9")
    page.get_by_role("button", name="Trace", exact=True).click()
    told = page.get_by_role("alert").filter(has_text="Destination address")
    expect(told).to_contain_text("'web9' is no address, and no endpoint of the project")
    page.get_by_label("Destination address").fill("web1")
    for port, says in (("http-s", "'http-s' is not a port"), ("80-81", "'80-81' is several ports: a packet has one")):
        page.get_by_label("Destination port").fill(port)
        page.get_by_role("button", name="Trace", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text="Destination port")).to_contain_text(says)


@pytest.mark.usefixtures("admin")
def test_a_search_takes_an_endpoint_as_a_trace_does(look: Look) -> None:
    page = look.page
    page.get_by_label("Search rules").fill("web1:443")
    expect(page.get_by_text("1 of 7 rules")).to_be_visible()
    expect(page.locator("tbody tr b")).to_have_text(["web-in"])
    page.get_by_label("Search rules").fill("web9:443")
    expect(page.get_by_text("'web9' is no address, and no endpoint of the project")).to_be_visible()
    look.open("/project/shop/acl?q=web1:443")
    expect(page.locator("tbody tr b")).to_have_text(["web-in"])

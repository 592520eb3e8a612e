"""Questions to a list in a real browser: why a packet is dropped, which rules touch what, what is unused."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .conftest import Look

pytestmark = pytest.mark.usefixtures("the_list_as_it_was")


def test_why_a_packet_is_dropped_and_how_to_let_it_in(look: Look) -> None:
    """From the page alone: ask, see the rule, add one before it, see what it opens, commit, ask again."""
    page = look.page
    look.sign_in(look.town.member)
    page.get_by_label("From address").fill("192.0.2.70")
    page.get_by_label("To address").fill("198.51.100.20")
    page.get_by_label("To port").fill("22")
    page.get_by_role("button", name="Find out").click()
    expect(page.get_by_text("Denied: rule ssh-contractors in the ingress list of shop")).to_be_visible()
    expect(page.get_by_text("host, in the list")).to_be_visible()
    page.get_by_role("button", name="Permit such packets").click()
    look.picture("rule-form")
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("ingress: tcp 192.0.2.70 > 198.51.100.20, to port 22")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    look.open("/project/shop/trace?source=192.0.2.70&destination=198.51.100.20&port=22")
    expect(page.get_by_text("Permitted: rule permit-tcp-22")).to_be_visible()
    with look.town.client() as client:
        assert next(rule.id for rule in client.acls.read_rules("shop")) == "permit-tcp-22"


def test_who_asks_about_an_own_address_learns_that_pretending_is_another_matter(look: Look) -> None:
    """A packet with a forged source is dropped whatever the lists say, so the list's answer alone would mislead."""
    look.sign_in(look.town.member)
    forged = look.page.get_by_text("One that only pretends to is dropped before any list is asked")
    look.open("/project/shop/trace?source=198.51.100.20&destination=192.0.2.70&port=25")
    expect(forged).to_be_visible()
    look.open("/project/shop/trace?source=192.0.2.70&destination=198.51.100.20&port=25")
    expect(look.page.get_by_text("in the ingress list of shop")).to_be_visible()
    expect(forged).to_have_count(0)


def test_an_operator_need_not_know_whose_an_address_is(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.admin, "/identity/tenants")
    page.get_by_label("From address").fill("192.0.2.70")
    page.get_by_label("To address").fill("198.51.100.20")
    page.get_by_label("To port").fill("23")
    page.get_by_role("button", name="Find out").click()
    expect(page).to_have_url(re.compile("/project/shop/trace"))
    expect(page.get_by_role("button", name="Permit such packets")).to_be_visible()


def test_rules_are_searched_by_what_they_touch(look: Look) -> None:
    look.sign_in(look.town.member, "/project/shop/acl")
    look.page.get_by_label("Search rules").fill("udp 198.51.100.53:53 permit")
    expect(look.page.get_by_text("1 of 7 rules")).to_be_visible()
    expect(look.page.locator("tbody tr")).to_have_count(1)
    look.page.get_by_label("Search rules").fill("sctp 203.0.113.1:9")
    expect(look.page.get_by_text("No rule fits the search")).to_be_visible()


def test_a_search_for_a_connection_finds_what_decides_that(look: Look) -> None:
    """Not every rule with `any`: those that no packet reaches, and those of the other direction, are not it."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    for asked, decide in {
        "198.51.100.17:443": ["web-in"],
        "198.51.100.17:https": ["web-in"],
        "198.51.100.9:22": ["ssh-contractors", "ssh-office"],
        "203.0.113.9:5432": ["db-out"],
        "198.51.100.9:5432": [],
    }.items():
        page.get_by_label("Search rules").fill(asked)
        shown = f"{len(decide)} of 7 rules" if decide else "No rule fits the search"
        expect(page.get_by_text(shown).first).to_be_visible()
        expect(page.locator("tbody tr b")).to_have_text(decide)


def test_hits_are_paged_and_unused_rules_are_told(look: Look) -> None:
    look.sign_in(look.town.member, "/project/shop/hits")
    expect(look.page.get_by_text("1-7 of 7")).to_be_visible()
    look.page.get_by_label("Show", exact=True).click()
    look.page.get_by_role("option", name="unused for a day").click()
    expect(look.page.get_by_text("No host is counted yet")).to_be_visible()

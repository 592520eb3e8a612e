"""What is expected of a list, and drafts that are shared, in a real browser."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from orchestrator.policy.formats.native import acl_from_json

from .conftest import SHOP, Look

NOBODY = "nobody reaches 198.51.100.20:22 from outside except 192.0.2.0/24"


@pytest.fixture(autouse=True)
def the_list_as_it_was(look: Look) -> Iterator[None]:
    """Each test begins with the same list, of which nothing is expected."""
    with look.town.client() as client:
        client.expectations.delete("shop")
        client.acls.put("shop", acl_from_json(SHOP))
        yield
        client.expectations.delete("shop")


def open_ssh(look: Look) -> None:
    """Add a rule to the draft that permits SSH from everywhere, from the trace of a packet."""
    look.open("/project/shop/trace?source=203.0.113.9&destination=198.51.100.20&port=22")
    look.page.get_by_role("button", name="Permit such packets").click()
    look.page.get_by_role("button", name="Keep in draft").click()
    expect(look.page.get_by_text("1 change not committed")).to_be_visible()


def test_a_commit_that_breaks_an_expectation_takes_a_tick_more(look: Look) -> None:
    """Write a sentence, keep it, open what it forbids, see the packet in the review, and commit despite it."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/expectations")
    page.get_by_label("Expectations").fill("nobody knows")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("alert")).to_contain_text("line 1: 'nobody knows' is no expectation")
    page.get_by_label("Expectations").fill(NOBODY)
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("All 1 expectation kept")).to_be_visible()
    open_ssh(look)
    look.open("/project/shop/review")
    expect(page.get_by_text("1 expectation broken")).to_be_visible()
    expect(page.get_by_text("203.0.113.9:49152 > 198.51.100.20:22 syn")).to_be_visible()
    look.picture("expectation-broken")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("it breaks the expectation")).to_be_visible()
    page.get_by_role("checkbox", name="Commit it although it breaks").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text(re.compile("Version .* is committed"))).to_be_visible()


def test_a_packet_is_traced_in_the_draft(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    open_ssh(look)
    look.open("/project/shop/trace?source=203.0.113.9&destination=198.51.100.20&port=22")
    expect(page.get_by_text("Permitted: rule permit-tcp-22")).to_be_visible()
    page.get_by_role("checkbox", name="In your draft").click()
    page.get_by_role("button", name="Trace", exact=True).click()
    expect(page.get_by_text("Denied:")).to_be_visible()


def test_a_draft_is_looked_at_by_somebody_else(look: Look) -> None:
    """One shares the link, another one sees what it would change and goes on from it."""
    page = look.page
    look.sign_in(look.town.member)
    open_ssh(look)
    look.open("/project/shop/review")
    page.get_by_role("button", name="Share a link").click()
    page.get_by_label("What should they look at?").fill("ssh for a partner")
    page.get_by_role("button", name="Make a link").click()
    page.get_by_role("link", name="Open it").click()
    expect(page.get_by_text("ssh for a partner")).to_be_visible()
    path = page.url.removeprefix(look.town.console)
    look.sign_in(look.town.admin, path)
    expect(page.get_by_text("ingress: tcp 203.0.113.9 > 198.51.100.20, to port 22")).to_be_visible()
    look.picture("shared-draft")
    page.get_by_role("button", name="Go on from it").click()
    expect(page.get_by_role("button", name="Commit", exact=True)).to_be_visible()
    with look.town.client() as client:
        assert "permit-tcp-22" not in [rule.id for rule in client.acls.read_rules("shop")]
    look.open(path)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("No draft is shared")).to_be_visible()


def test_two_people_write_expectations_and_nothing_is_lost(look: Look) -> None:
    """Keep shows first what somebody else keeps meanwhile; the text that was typed stays."""
    page, mine = look.page, "everybody reaches 198.51.100.53:53"
    look.sign_in(look.town.member, "/project/shop/expectations")
    with look.town.client(look.town.member) as client:
        client.expectations.keep("shop", NOBODY)
        page.get_by_label("Expectations").fill(mine)
        page.get_by_role("button", name="Keep").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Somebody changed the expectations meanwhile (shop's engineer (member")
        expect(alert).to_contain_text(NOBODY)
        expect(page.get_by_label("Expectations")).to_have_value(mine)
        assert client.expectations.read("shop").text == NOBODY
        page.get_by_label("Expectations").fill(f"{NOBODY}\n{mine}")
        page.get_by_role("button", name="Keep").click()
        expect(page.get_by_text("broken, of 2")).to_be_visible()
        assert client.expectations.read("shop").text.splitlines() == [NOBODY, mine]
        page.get_by_label("Expectations").fill("")
        page.get_by_role("button", name="Keep").click()
        expect(page.get_by_text("Nothing is expected any more")).to_be_visible()
        assert client.expectations.read("shop").created is None


def test_a_test_that_takes_long_says_so_and_is_asked_once(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/expectations")
    page.get_by_label("Expectations").fill(NOBODY)
    button = page.get_by_role("button", name="Test the list")
    look.town.service.send_signal(signal.SIGSTOP)
    try:
        button.click()
        expect(page.get_by_text("Testing the list …")).to_be_visible()
        expect(button).to_be_disabled()
    finally:
        look.town.service.send_signal(signal.SIGCONT)
    expect(page.get_by_text("All 1 expectation kept")).to_be_visible()
    expect(page.get_by_text("Testing the list …")).to_have_count(0)
    expect(button).to_be_enabled()

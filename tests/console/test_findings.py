"""Findings that do not cry wolf, in a real browser: how much each matters, who waived it, what ends soon."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from command_line import aclflow
from patience import until
from playwright.sync_api import Error, Locator, Page, expect

from orchestrator.policy.formats.native import acl_from_json

from .conftest import SHOP, Look
from .test_accessible import UNDER_DIALOGS, violations

IN_TWO_DAYS = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
VISITOR = {
    "id": "visitor", "action": "permit", "protocol": "tcp", "source": "203.0.113.9/32",
    "destination": "198.51.100.20/32", "destination_ports": 8443, "expires": IN_TWO_DAYS.isoformat(),
}  # fmt: skip
NO_GUESTS = {
    "id": "no-guests", "action": "deny", "protocol": "tcp", "source": "192.0.2.128/25",
    "destination": "198.51.100.0/25", "destination_ports": "8000-8999",
}  # fmt: skip
APP = {
    "id": "app", "action": "permit", "protocol": "tcp", "source": "192.0.2.192/26",
    "destination": "198.51.100.96/27", "destination_ports": "8080-9080",
}  # fmt: skip


@pytest.fixture
def page(look: Look) -> Iterator[Page]:
    """A member at the list as it was, with a rule that ends; nothing is waived before and after."""
    with look.town.client() as client:
        client.acls.put("shop", acl_from_json({**SHOP, "rules": [*SHOP["rules"], VISITOR, NO_GUESTS, APP]}))
        look.sign_in(look.town.member)
        yield look.page
        for waiver in client.waivers.read_all("shop"):
            client.waivers.remove("shop", waiver.id)


def kind(page: Page, name: str) -> Locator:
    return page.locator("[data-part=findings] .findings", has_text=f"{name}: ")


def found(page: Page) -> Locator:
    return page.locator("[data-part=findings]").get_by_role("status")


def opens_waiver(page: Page, name: str) -> bool:
    """Press a button, and tell whether its dialog opens: findings that are drawn anew just then hear no click."""
    page.get_by_role("button", name=name).click()
    with suppress(Error):
        page.get_by_label("Why may it stay so?").wait_for(timeout=10_000)
    return page.get_by_label("Why may it stay so?").is_visible()


def test_findings_say_how_much_they_matter_and_why(look: Look, page: Page) -> None:
    """Errors first and open; notes, which lists ordinarily have, stay closed. The command line counts the same."""
    look.open("/project/shop/check")
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.member}
    told = aclflow("acl", "check", "shop", environment=service)
    expect(found(page)).to_contain_text("1 error")
    numbers = re.findall(r"(\d+) (error|warning|note)", found(page).inner_text())
    (counts,) = re.findall(r"^\S+: (\d[^(\n]*) \(", told.err, re.MULTILINE)
    assert numbers == re.findall(r"(\d+) (error|warning|note)", counts)
    expect(page.locator("[data-part=findings] .findings").first).to_contain_text("Never decides")
    expect(kind(page, "shadowed")).to_contain_text(
        "what it says does not happen: rules with the other action come first"
    )
    conflicts = kind(page, "conflict")
    expect(conflicts.get_by_text("a deny before a permit is how exceptions are written")).to_have_count(0)
    conflicts.get_by_role("button").first.click()
    expect(conflicts.get_by_text("a deny before a permit is how exceptions are written").first).to_be_visible()
    look.open("/project/shop")
    tile = page.locator(".tile", has_text="Findings")
    expect(tile).to_contain_text("1 error and 1 note")
    expect(tile.locator(".value")).to_have_text("1")


def test_a_finding_is_waived_until_a_day_and_counts_again(look: Look, page: Page) -> None:
    """With a reason and an end, which are asked for; somebody else sees them, and takes the waiver back."""
    look.open("/project/shop/check")
    page.get_by_role("button", name="Waive shadowed of late").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Waive it").click()
    expect(dialog.get_by_text("say why, so that the next one who looks knows")).to_be_visible()
    dialog.get_by_label("Why may it stay so?").fill("the contractor comes back in spring")
    dialog.get_by_label("Until", exact=True).fill("2020-01-01")
    dialog.get_by_role("button", name="Waive it").click()
    expect(dialog.get_by_text("is in the past").first).to_be_visible()
    dialog.get_by_label("Until", exact=True).fill("in 8w")
    assert violations(look, UNDER_DIALOGS) == []
    dialog.get_by_role("button", name="Waive it").click()
    expect(kind(page, "shadowed")).to_have_count(0)
    expect(found(page)).not_to_contain_text("error")
    waived = page.locator("[data-part=waived]")
    expect(waived).to_contain_text("shadowed of late: the contractor comes back in spring")
    look.picture("waived")
    with look.town.client() as client:
        (waiver,) = client.waivers.read_all("shop")
    assert (waiver.kind, waiver.rules) == ("shadowed", ("late",))
    assert (waiver.ends - dt.datetime.now(dt.UTC)).days == 55
    look.sign_in(look.town.reader, "/project/shop/check")
    expect(waived).to_contain_text("the contractor comes back in spring")
    expect(waived.get_by_role("button")).to_have_count(0)
    look.sign_in(look.town.member, "/project/shop/check")
    page.get_by_role("button", name="Delete the waiver of shadowed of late").click()
    expect(kind(page, "shadowed")).to_have_count(1)
    expect(waived).to_contain_text("None.")


def test_a_conflict_is_waived_with_both_of_its_rules(look: Look, page: Page) -> None:
    look.open("/project/shop/check")
    kind(page, "conflict").get_by_role("button").first.click()
    until(lambda: opens_waiver(page, "Waive conflict of no-guests and app"))
    page.get_by_label("Why may it stay so?").fill("an exception")
    page.get_by_role("button", name="Waive it").click()
    expect(page.locator("[data-part=waived]")).to_contain_text("conflict of no-guests and app: an exception")
    expect(page.get_by_role("button", name="Waive conflict of no-guests and app")).to_have_count(0)


def test_what_ends_soon_is_told_on_the_check_page(look: Look, page: Page) -> None:
    look.open("/project/shop/check")
    ending = page.locator("[data-part=ending]")
    expect(ending).to_contain_text("expiring")
    expect(ending).to_contain_text("visitor")
    with look.town.client() as client:
        client.acls.delete_rule("shop", "visitor")
    until(lambda: nothing_ends(look, page))  # what was read a moment ago is shown for a moment more


def nothing_ends(look: Look, page: Page) -> bool:
    """Whether the check page, opened anew, tells of no rule that ends."""
    look.open("/project/shop/check")
    expect(found(page).first).to_be_visible()
    expect(page.get_by_text("Looking for ends")).to_have_count(0)
    return page.get_by_text("Rules that end within a week").count() == 0


def test_a_review_shows_only_what_the_change_brings(look: Look, page: Page) -> None:
    """A rule whose end is picked in the calendar: its end and its findings are said, older findings are not."""
    look.open("/project/shop/acl")
    page.get_by_role("button", name="New rule").click()
    ends = (dt.datetime.now(dt.UTC) + dt.timedelta(days=3)).date()
    for label, value in {
        "Name": "again",
        "Source": "192.0.2.128/25",
        "Destination": "198.51.100.101",
        "Ends": "in 0h",
    }.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_label("Name", exact=True).focus()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("is in the past")).to_be_visible()
    page.get_by_role("button", name="Pick a time").click()
    page.get_by_label("Ends at").fill(f"{ends}T18:00")
    page.get_by_role("button", name="Take it").click()
    expect(page.get_by_label("Ends", exact=True)).to_have_value(f"{ends} 18:00")
    expect(dialog.get_by_text(f"that is {ends} 18:00:00")).to_be_visible()
    dialog.get_by_role("button", name="deny").click()
    dialog.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text(f"'again' ends by itself {ends} 18:00:00, in ")).to_be_visible()
    odd = page.locator("[data-part=findings]")
    expect(odd).to_contain_text("Brought: 3 notes. The list has 5 findings in all.")
    kind(page, "conflict").get_by_role("button").first.click()
    expect(odd).to_contain_text("show again")
    expect(odd).not_to_contain_text("'late'")

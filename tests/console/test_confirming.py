"""A commit that goes back unless it is confirmed, in a real browser: kept, taken back, left alone, seen by others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from command_line import aclflow
from playwright.sync_api import Locator, Page, expect

from orchestrator.client import Client
from orchestrator.errors import Conflict
from orchestrator.policy.formats.native import acl_from_json

from .conftest import PLACES, SHOP, Look
from .test_accessible import violations

SHORTEST_S = 10
KEPT = re.compile(r"Version \d+ is kept\.")
PAGES = [path for path in PLACES if path.startswith("/project/shop")]


@pytest.fixture
def member(look: Look) -> Iterator[Client]:
    """A member of the project, whose list is as it was and waits for nobody, before and after."""
    with look.town.client(look.town.member) as client:
        restore(client)
        look.sign_in(look.town.member)
        yield client
        restore(client)


def restore(client: Client) -> None:
    if client.tenants.read("shop").unconfirmed is not None:
        client.acls.revert("shop")
    client.acls.put("shop", acl_from_json(SHOP))


def rules(client: Client) -> list[str]:
    return [rule.id for rule in client.acls.read_rules("shop")]


def remove_dns(page: Page) -> None:
    """Take a rule out in the draft, and go to the review."""
    page.get_by_label("More for dns").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()


def commit_for_five_minutes(look: Look) -> None:
    page = look.page
    look.open("/project/shop/acl")
    remove_dns(page)
    page.get_by_label("Keep it").click()
    page.get_by_role("option", name="only if confirmed within 5 minutes").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("Keep it only if confirmed within 5 minutes")).to_be_visible()
    page.get_by_role("button", name=re.compile("Done|Go on without waiting")).click()
    expect(banner(page)).to_be_visible()


def banner(page: Page) -> Locator:
    return page.locator("[data-part=unconfirmed]")


def test_a_change_is_kept_in_time(look: Look, member: Client) -> None:
    """It asks on every page of the project, counts down, and is quiet once it is kept."""
    before = member.tenants.read("shop").in_force.version
    commit_for_five_minutes(look)
    look.picture("unconfirmed")
    for path in PAGES:
        look.open(path)
        expect(banner(look.page)).to_contain_text(f"goes back to version {before} at")
        expect(look.page.get_by_role("timer")).to_have_text(re.compile(r"^[45]:\d\d$"))
    seen = look.page.get_by_role("timer").inner_text()
    expect(look.page.get_by_role("timer")).not_to_have_text(seen)
    assert violations(look) == []
    look.page.get_by_role("button", name="Keep", exact=True).click()
    expect(banner(look.page)).to_contain_text(KEPT)
    assert member.tenants.read("shop").unconfirmed is None
    assert "dns" not in rules(member)
    look.open("/project/shop/acl")
    expect(banner(look.page)).to_be_hidden()


def test_a_change_is_taken_back_at_once(look: Look, member: Client) -> None:
    """The button asks; the page offers to show the list as it is again."""
    commit_for_five_minutes(look)
    page = look.page
    expect(page.get_by_text("dns", exact=True)).to_have_count(0)
    page.get_by_role("button", name="Revert now").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert "dns" not in rules(member)
    page.get_by_role("button", name="Revert now").click()
    page.get_by_role("button", name="Take it back").click()
    expect(banner(page)).to_contain_text("was taken back: the list is as it was at version")
    assert "dns" in rules(member)
    page.get_by_role("button", name="Show the list as it is").click()
    expect(page.get_by_text("dns", exact=True)).to_be_visible()


def test_a_change_that_nobody_keeps_goes_back_by_itself(look: Look, member: Client) -> None:
    acl = acl_from_json({**SHOP, "rules": SHOP["rules"][:-1]})
    written = member.acls.put("shop", acl, confirm_s=SHORTEST_S)
    look.open("/project/shop/history")
    expect(banner(look.page)).to_contain_text(f"Version {written.version} goes back")
    expect(banner(look.page)).to_contain_text(f"Version {written.version} was taken back")
    assert "db-out" in rules(member)


def test_a_reader_sees_the_count_down_and_cannot_settle_it(look: Look, member: Client) -> None:
    member.acls.put("shop", acl_from_json({**SHOP, "rules": []}), confirm_s=300)
    look.sign_in(look.town.reader, "/project/shop")
    expect(banner(look.page)).to_contain_text("unless it is kept")
    for name in ("Keep", "Revert now"):
        expect(banner(look.page).get_by_role("button", name=name, exact=True)).to_be_hidden()


def test_other_writers_learn_why_they_have_to_wait(look: Look, member: Client) -> None:
    """In the browser, where the draft is kept; on the command line; and by REST."""
    page = look.page
    look.open("/project/shop/acl")
    remove_dns(page)
    member.acls.put("shop", acl_from_json({**SHOP, "rules": SHOP["rules"][:-1]}), confirm_s=300)
    expect(banner(page)).to_contain_text("Until then nobody can write another change")
    with look.town.client() as admin, pytest.raises(Conflict, match="waits until"):
        admin.acls.delete_rule("shop", "late")
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.admin}
    told = aclflow("acl", "rule", "delete", "shop", "late", "--yes", environment=service)
    assert (told.code, "to be confirmed" in told.err) == (1, True)
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("deletion of 'dns'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("Not committed: a change of the list of 'shop' waits until")).to_be_visible()
    banner(page).get_by_role("button", name="Keep", exact=True).click()
    expect(banner(page)).to_contain_text(KEPT)
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    assert {"dns", "db-out"}.isdisjoint(rules(member))

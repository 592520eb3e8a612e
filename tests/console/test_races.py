"""Several people change one list at once, in real browsers; older versions come back. Nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import RuleId

from .conftest import Look, draft_deletion

pytestmark = pytest.mark.usefixtures("the_list_as_it_was")


def test_somebody_else_was_faster(look: Look) -> None:
    """What was edited goes on top of the newer list, to be looked at again."""
    page = look.page
    draft_deletion(look, "dns")
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()
    with look.town.client() as client:
        client.acls.delete_rule("shop", "late")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("Somebody changed the list meanwhile")).to_be_visible()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert {"dns", "late"}.isdisjoint(rule.id for rule in client.acls.read_rules("shop"))


def test_a_review_does_not_show_what_others_did_as_taken_back(look: Look) -> None:
    """A colleague wrote between the first edit and the review: the draft goes on top of that, and it is told."""
    page = look.page
    draft_deletion(look, "dns")
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    with look.town.client() as client:
        late = client.acls.read_rule("shop", "late").rule
        client.acls.insert_rule(
            "shop", replace(late, id=RuleId("theirs"), source=Addresses((Prefix.parse("203.0.113.8"),)))
        )
        version = client.acls.read("shop").version
    page.get_by_role("button", name="Review and commit").click()
    told = f"Somebody changed the list meanwhile: your changes are on top of version {version}."
    expect(page.get_by_text(told)).to_be_visible()
    expect(page.get_by_text("deletion of 'dns'")).to_be_visible()
    expect(page.locator("[data-part=difference][aria-busy=false]")).to_be_visible()
    expect(page.get_by_text("theirs")).to_have_count(0)
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        rules = [rule.id for rule in client.acls.read_rules("shop")]
    assert ("theirs" in rules, "dns" in rules) == (True, False)


def test_a_review_says_that_others_changed_the_same_packets(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("2222")
    page.get_by_role("button", name="Keep in draft").click()
    with look.town.client() as client:
        client.acls.delete_rule("shop", "ssh-office")
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Somebody changed the same packets meanwhile: what follows")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("rule 'ssh-office' was changed on both sides")).to_be_visible()
    page.get_by_role("button", name="Leave my draft as it is").click()


def test_two_people_changed_the_same_packets_and_nothing_typed_is_lost(look: Look) -> None:
    """One says which rules win; until then the draft is as it was, with what was said about it."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("2222")
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_label("What is it for?").fill("another door")
    expect(page.get_by_text("Newly permitted")).to_be_visible()
    with look.town.client() as client:
        client.acls.delete_rule("shop", "late")
        client.acls.delete_rule("shop", "ssh-office")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("rule 'ssh-office' was changed on both sides")).to_be_visible()
    page.get_by_role("button", name="Leave my draft as it is").click()
    look.open("/project/shop/acl")
    expect(page.get_by_text("any port 2222")).to_be_visible()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_label("What is it for?")).to_have_value("another door")
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Put my rules on top, and review").click()
    expect(page.get_by_text("new rule 'ssh-office'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        rules = {rule.id: rule for rule in client.acls.read_rules("shop")}
        assert [str(each) for each in rules["ssh-office"].destination_ports] == ["2222"]
        assert "late" not in rules
        assert next(client.acls.read_versions("shop")).comment == "another door"


def test_two_browsers_commit_at_once_and_both_changes_are_there(look: Look) -> None:
    """The rules that two people add touch no packet of each other."""
    page = look.page
    look.sign_in(look.town.member)
    other = page.context.browser.new_context().new_page()
    other.goto(f"{look.town.console}/login#token={look.town.admin}")
    other.wait_for_url(lambda url: "/login" not in url)
    other.goto(f"{look.town.console}/project/shop/acl")
    look.open("/project/shop/acl")
    for who, name, source in ((page, "mine", "203.0.113.7"), (other, "theirs", "203.0.113.8")):
        who.get_by_role("button", name="New rule").click()
        for label, value in {"Name": name, "Source": source, "Destination": "198.51.100.9"}.items():
            who.get_by_label(label, exact=True).fill(value)
        who.get_by_role("dialog").get_by_role("button", name="permit").click()
        who.get_by_role("button", name="Keep in draft").click()
        who.get_by_role("button", name="Review and commit").click()
        expect(who.get_by_text("Newly permitted")).to_be_visible()
    other.get_by_role("button", name="Commit", exact=True).click()
    expect(other.get_by_text("is committed")).to_be_visible()
    other.goto("about:blank")
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("new rule 'mine'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert {"mine", "theirs"} <= {rule.id for rule in client.acls.read_rules("shop")}


def test_an_older_version_is_taken_back(look: Look) -> None:
    page = look.page
    with look.town.client() as client:
        version = next(client.acls.read_versions("shop")).version
        client.acls.delete_rule("shop", "web-in")
    look.sign_in(look.town.member, "/project/shop/history")
    panel = page.locator(".panel", has_text=f"Version {version}").first
    panel.get_by_role("button", name="Roll back to it").click()
    expect(page.get_by_text(f"the whole list, from version {version}")).to_be_visible()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly permitted")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert "web-in" in [rule.id for rule in client.acls.read_rules("shop")]

"""A list is edited in a draft in a real browser: typed, dragged, refused at its field, reviewed."""

from __future__ import annotations

import datetime as dt

import pytest
from playwright.sync_api import expect

from orchestrator.policy.formats.native import acl_from_json

from .conftest import Look, discard, draft_deletion

WHERE_COMMIT_WAS = """
window.places = [];
const look = () => {
  const commit = [...document.querySelectorAll("button")].find((each) => each.innerText.trim().endsWith("Commit"));
  if (commit) window.places.push(commit.getBoundingClientRect().top);
  requestAnimationFrame(look);
};
look();
"""
"""Notes in every frame how far the button Commit is from the top of the window, in pixels."""

pytestmark = pytest.mark.usefixtures("the_list_as_it_was")


def test_nothing_is_changed_before_it_is_committed(look: Look) -> None:
    page = look.page
    draft_deletion(look, "web-in")
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    expect(page.get_by_text("web-in", exact=True)).to_have_count(0)
    with look.town.client() as client:
        assert "web-in" in [rule.id for rule in client.acls.read_rules("shop")]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("web-in", exact=True)).to_be_visible()


def test_a_rule_is_dragged_to_another_place(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_text("ping", exact=True).drag_to(page.get_by_text("ssh-contractors", exact=True))
    expect(page.get_by_text("1 change not committed; the last: move of 'ping'")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("ping")
    discard(page)


def test_a_wrong_value_is_told_at_its_field_and_nothing_is_lost(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("2x")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("'2x' is not a port")).to_be_visible()
    expect(page.get_by_label("Destination ports")).to_have_value("2x")
    page.get_by_label("Destination ports").fill("2222")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("any port 2222")).to_be_visible()
    discard(page)


def test_a_new_rule_says_nothing_until_somebody_does(look: Look) -> None:
    """A new rule opens nothing by itself; errors are said at their fields, and the form stays with what was typed."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="New rule").click()
    keep = page.get_by_role("button", name="Keep in draft")
    page.get_by_label("Name").fill("dns")
    expect(page.get_by_label("Destination ports")).to_be_disabled()
    expect(page.get_by_text("Only tcp, udp and sctp have ports: choose the protocol first")).to_have_count(2)
    keep.click()
    expect(page.get_by_text("Source: it is empty").or_(page.get_by_text("it is empty: write prefixes"))).to_be_visible()
    page.get_by_label("Source", exact=True).fill("192.0.2.64/26")
    page.get_by_label("Destination", exact=True).fill("2001:db8::1")
    keep.click()
    expect(page.get_by_text("Action: a rule needs its `action`")).to_be_visible()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="permit").click()
    keep.click()
    destination = dialog.locator(".q-field", has=page.get_by_label("Destination", exact=True))
    expect(destination.get_by_text("can never match")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("@nobody")
    keep.click()
    expect(dialog.get_by_text("no address group is called 'nobody'")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("203.0.113.7")
    keep.click()
    expect(dialog.get_by_text("is not among the project's own prefixes")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("198.51.100.7")
    keep.click()
    expect(dialog.get_by_text("'dns' is already the id of rule 4")).to_be_visible()
    expect(page.get_by_label("Source", exact=True)).to_have_value("192.0.2.64/26")
    page.get_by_label("Name").fill("contractors")
    keep.click()
    told = "'contractors' is in the draft, at the end of the list; ssh-contractors before it still denies some"
    expect(page.get_by_text(told)).to_be_visible()
    expect(page.locator("tbody tr", has_text="contractors").nth(1)).to_be_visible()
    discard(page)


def test_what_edits_a_rule_stays_in_the_window_beside_long_addresses(look: Look) -> None:
    page = look.page
    rule = {
        "id": "a_rule_with_a_long_name_that_does_not_break", "action": "deny",
        "source": "2001:db8:1234:5678:9abc:def0:1234:0/112",
    }  # fmt: skip
    with look.town.client() as client:
        client.acls.put("shop", acl_from_json({"rules": [rule]}))
    look.sign_in(look.town.member, "/project/shop/acl")
    more = page.get_by_label("More for a_rule")
    shown, table = more.bounding_box(), page.locator(".rules .q-table__middle").bounding_box()
    assert shown is not None
    assert table is not None
    assert shown["x"] + shown["width"] <= table["x"] + table["width"]


def test_a_rule_ends_and_names_ports_as_people_say_it(look: Look) -> None:
    """In the zone of the one who types; a time in the past is refused at its field."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("ssh, 2222")
    page.get_by_label("Ends").fill("2020-01-01")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_role("dialog").get_by_text("2020-01-01")).to_be_visible()
    page.get_by_label("Ends").fill("in 2h")
    page.get_by_role("checkbox", name="Stateless").click()
    expect(page.get_by_role("checkbox", name="Stateless")).to_be_checked()
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("any port 22, 2222")).to_be_visible()
    row = page.locator("tbody tr").filter(has_text="ssh-office")
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    expect(row).to_contain_text(f"until {ends:%Y-%m-%d}")
    expect(row).to_contain_text("stateless")
    discard(page)


def test_a_review_says_first_what_is_dangerous(look: Look) -> None:
    """Permit any any: the review says in a sentence what that is; the history keeps what it was for."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="New rule").click()
    for label, value in {"Name": "all", "Source": "any", "Destination": "any"}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("dialog").get_by_role("button", name="permit").click()
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    said = page.locator("[data-part=headline]").get_by_text("Opens every port of every address to everyone.")
    expect(said).to_be_visible()
    assert "text-negative" in (said.get_attribute("class") or "")
    above, below = said.bounding_box(), page.get_by_role("heading", name="Changes").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    page.get_by_label("What is it for?").fill("a test of the very wide kind")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host (the domain has none yet)")).to_be_visible()
    look.open("/project/shop/history")
    newest = page.locator(".panel").first
    for said in ("a test of the very wide kind", "by shop's engineer (member ", "Adds 'all'."):
        expect(newest).to_contain_text(said)


@pytest.mark.parametrize("height", [500, 2500])
def test_commit_stays_where_it_is_while_a_review_is_drawn(look: Look, height: int) -> None:
    """Somebody who presses it meanwhile does not miss it; `height` is a window that scrolls, or one that need not."""
    page = look.page
    page.set_viewport_size({"width": 1280, "height": height})
    draft_deletion(look, "web-in")
    page.add_init_script(WHERE_COMMIT_WAS)
    look.open("/project/shop/review")
    places = page.evaluate("window.places")
    assert max(places) - min(places) <= 2, sorted(set(places))
    assert height - 100 < min(places) < height
    look.open("/project/shop/acl")
    discard(page)


def test_a_draft_is_not_thrown_away_by_a_slip(look: Look) -> None:
    page = look.page
    draft_deletion(look, "web-in")
    page.get_by_role("button", name="Discard", exact=True).click()
    expect(page.get_by_text("1 change will be lost")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    discard(page)
    expect(page.get_by_text("web-in", exact=True)).to_be_visible()


def test_a_cell_is_edited_where_it_stands(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_label("Edit source of ping").click()
    field = page.get_by_label("source of ping", exact=True)
    field.fill("192.0.2.0/33")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("alert").filter(has_text="192.0.2.0/33")).to_be_visible()
    page.get_by_label("Edit source of ping").click()
    expect(field).to_have_value("192.0.2.0/33")
    field.fill("")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("alert").filter(has_text="it is empty: write prefixes")).to_be_visible()
    expect(page.get_by_text("not committed")).to_have_count(0)
    page.get_by_label("Edit source of ping").click()
    field.fill("@office, 203.0.113.0/24")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("1 change not committed; the last: change of 'ping'")).to_be_visible()
    expect(page.get_by_text("@office, 203.0.113.0/24")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="192.0.2.0/33")).to_have_count(0)
    discard(page)

"""The main tasks with the keyboard alone: no test here touches a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from orchestrator.policy.formats.native import acl_from_json

from .conftest import PLACES, SHOP, Look

MOST_STEPS = 60
WALKED = 45
"""Further than the menu of an operator."""
GOES_ON = """() => {
  const at = document.activeElement, goesOn = at === document.body || at !== window.last;
  window.last = at;
  return goesOn;
}"""
SEEN = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const box = at.closest(".q-field__control") || at;
  return at === document.body || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
    || getComputedStyle(box, "::after").borderTopWidth === "2px"
    || [style, getComputedStyle(box)].some((each) => each.boxShadow.includes("0px 0px 0px 3px"));
}"""
"""Whether it can be seen where the keyboard is: an outline or a ring, or the frame of the field."""
COUNT_GIFTS = """() => {
  const plain = window.setTimeout;
  window.asked = window.given = 0;
  window.setTimeout = (act, wait, ...all) => {
    const counts = String(act).includes("dataset.focus");
    window.asked += counts;
    return plain(() => { act(...all); window.given += counts; }, wait);
  };
}"""
"""Counts how often the page was asked to give the keyboard to something, and how often that was done."""


@pytest.fixture(autouse=True)
def the_list_as_it_was(look: Look) -> None:
    with look.town.client() as client:
        client.acls.put("shop", acl_from_json(SHOP))


def focused(page: Page) -> str:
    """What a screen reader would call the thing that has the keyboard."""
    return str(
        page.evaluate("""() => {
          const at = document.activeElement;
          return at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent || at.tagName;
        }""")
    ).strip()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of that name has the keyboard; where it is must be seen all the way."""
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        assert page.evaluate(SEEN), f"nobody sees where the keyboard is: {focused(page)}"
        if name in focused(page):
            return
    raise AssertionError(f"{name!r} is not reached; the keyboard is at {focused(page)!r}")


def test_every_page_is_walked_without_losing_sight_or_being_held(look: Look) -> None:
    """Each Tab goes on to something else, and it can be seen where the keyboard is."""
    look.sign_in(look.town.admin)
    unseen, held = [], []
    for path in PLACES:
        look.open(path)
        look.page.evaluate("window.last = null")
        for _ in range(WALKED):
            look.page.keyboard.press("Tab")
            if not look.page.evaluate(SEEN):
                unseen.append(f"{path}: {focused(look.page)[:60]}")
            if not look.page.evaluate(GOES_ON):
                held.append(f"{path}: {focused(look.page)[:60]}")
    assert (unseen, held) == ([], [])


def test_signing_in_and_going_to_a_page(look: Look) -> None:
    page = look.page
    look.page.goto(look.town.console + "/login")
    page.wait_for_function("document.activeElement.name === 'token'")  # the field has the keyboard by itself
    page.keyboard.type(look.town.member)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/login" not in url)
    page.wait_for_selector(".page[aria-busy=false]")
    look.was_cut_off()
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the page"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.classList.contains('page')")
    tab_to(page, "From address")
    look.open("/project/shop")
    tab_to(page, "Access list")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Access list")
    assert page.title() == "Access list · shop · aclflow"


def test_a_rule_is_moved_edited_and_committed(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    tab_to(page, "Place 2 of ssh-office")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_text("1 change not committed; the last: move of 'ssh-office'")).to_be_visible()
    look.has_focus("Place 1 of ssh-office")
    tab_to(page, "Edit destination of ssh-office")
    page.keyboard.press("Enter")
    expect(page.get_by_label("destination of ssh-office", exact=True)).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("any port 2x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="'2x' is not a port")).to_be_visible()
    look.has_focus("Edit destination of ssh-office")
    page.keyboard.press("Enter")
    expect(page.get_by_label("destination of ssh-office", exact=True)).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("any port 22, 2222")
    page.keyboard.press("Enter")
    expect(page.get_by_text("any port 22, 2222")).to_be_visible()
    tab_to(page, "Edit ssh-office")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Rule 1")).to_be_visible()
    look.has_focus("permit")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    look.has_focus("Edit ssh-office")
    tab_to(page, "Review and commit")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Newly permitted").first).to_be_visible()
    tab_to(page, "Commit")
    page.keyboard.press("Enter")
    expect(page.get_by_text("In force on every host")).to_be_visible()
    with look.town.client() as client:
        first = next(client.acls.read_rules("shop"))
        assert (first.id, [str(each) for each in first.destination_ports]) == ("ssh-office", ["22", "2222"])


def test_a_keyboard_that_has_gone_on_is_not_taken_back(look: Look) -> None:
    """The page gives the keyboard to the rule that was edited some time after its form has closed."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    tab_to(page, "Edit ssh-office")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Rule 2")).to_be_visible()
    look.has_focus("permit")
    page.evaluate(COUNT_GIFTS)
    page.keyboard.press("Escape")
    page.wait_for_function("window.asked > 0")
    look.has_focus("Edit ssh-office")
    page.keyboard.press("Tab")
    assert focused(page) == "More for ssh-office"
    page.wait_for_function("window.given > 0")
    assert focused(page) == "More for ssh-office"


@pytest.mark.parametrize(
    ("path", "opens", "field"),
    [
        ("/identity/tenants", "New tenant", "Id"),
        ("/identity/tenants", "Edit bank", "Name"),
        ("/identity/tenants", "Delete bank", "Type bank to delete it"),
        ("/admin/domains", "New domain", "Name"),
        ("/project/shop/groups", "New group", "Name"),
        ("/project/shop/acl", "New rule", "Name"),
        ("/admin/operator-rules", "New rule", "Name"),
    ],
)
def test_what_a_dialog_asks_first_has_the_keyboard(look: Look, path: str, opens: str, field: str) -> None:
    look.sign_in(look.town.admin, path)
    look.page.get_by_role("button", name=opens).press("Enter")
    expect(look.page.get_by_role("dialog").get_by_label(field, exact=True)).to_be_focused()
    look.page.keyboard.press("Escape")
    expect(look.page.get_by_role("dialog")).to_have_count(0)
    look.has_focus(opens)


def test_the_menu_of_a_narrow_window_has_the_keyboard_until_escape(look: Look) -> None:
    page = look.page
    page.set_viewport_size({"width": 390, "height": 844})
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="Show or hide the menu").press("Enter")
    look.has_focus("Overview")
    page.keyboard.press("Escape")
    look.has_focus("Show or hide the menu")
    expect(page.get_by_role("link", name="Overview")).not_to_be_in_viewport()

"""Every page in a real browser: who sees what, signing in and out, a service that is away."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from orchestrator.client import Host

from .conftest import PLACES, Look

pytestmark = pytest.mark.usefixtures("the_list_as_it_was")


@pytest.mark.parametrize("path", PLACES)
def test_every_page_shows_what_it_is_for(look: Look, path: str) -> None:
    look.sign_in(look.town.admin, path)
    expect(look.page.get_by_text(PLACES[path]).first).to_be_visible()
    expect(look.page.locator("h1")).to_be_visible()


def test_the_longest_menu_fits_its_window(look: Look) -> None:
    look.sign_in(look.town.admin, "/project/shop")
    for entry in look.page.locator(".side a.entry").all():
        expect(entry).to_be_in_viewport(ratio=1)


def test_pages_of_a_list_say_project_and_those_for_operators_tenant(look: Look) -> None:
    """They are the same; the page of tenants explains it, once. Kinds of events are names, as REST calls them."""
    look.sign_in(look.town.admin)
    for path in PLACES:
        look.open(path)
        text = look.page.locator(".page").inner_text().lower().replace("tenant.created", "")
        other = "tenant" if path.startswith("/project") else "project"
        explained = 1 if path == "/identity/tenants" else 0
        assert text.count(other) == explained, f"{path}: {text}"
    expect(look.page.get_by_label("Project", exact=True)).to_be_visible()
    look.open("/identity/tenants")
    expect(look.page.get_by_text("A tenant is what its own people call their project")).to_be_visible()


def test_a_wrong_token_is_told_so_and_nothing_is_seen(look: Look) -> None:
    look.open("/project/shop/acl")
    expect(look.page).to_have_url(re.compile("/login"))
    look.page.get_by_label("Access token").fill("aclflow_wrong")
    look.page.get_by_role("button", name="Sign in").click()
    expect(look.page.get_by_role("alert")).to_contain_text("does not know this token")
    look.complaints.clear()  # the browser notes that the answer was 401
    look.page.get_by_label("Access token").fill(look.town.reader)
    look.page.get_by_role("button", name="Sign in").click()
    expect(look.page).to_have_url(re.compile("/project/shop/acl"))


def test_a_link_with_a_token_works_on_the_sign_in_page_too(look: Look) -> None:
    look.open("/login")
    look.page.goto(f"{look.town.console}/login#token={look.town.member}")
    expect(look.page).to_have_url(re.compile("/project/shop$"))


def test_a_member_sees_nothing_of_another_project_nor_of_the_operator(look: Look) -> None:
    look.sign_in(look.town.member)
    for path, words in {
        "/project/bank/acl": "there is no project 'bank'",
        "/admin/domains": "This page is for operators",
        "/identity/tokens": "This page is for operators",
    }.items():
        look.open(path)
        expect(look.page.get_by_text(words)).to_be_visible()
    expect(look.page.get_by_text("Topology")).to_have_count(0)


def test_a_reader_is_offered_no_change(look: Look) -> None:
    look.sign_in(look.town.reader, "/project/shop/acl")
    expect(look.page.get_by_text("ssh-office")).to_be_visible()
    for name in ("New rule", "Import", "Edit ssh-office"):
        expect(look.page.get_by_role("button", name=name)).to_have_count(0)


def test_whoever_looks_sees_whether_the_list_is_in_force(look: Look) -> None:
    """A host that does not hold the list yet: members learn that there is one, and the page follows by itself."""
    page = look.page
    look.sign_in(look.town.member)
    for path in (path for path in PLACES if path.startswith("/project/shop")):
        look.open(path)
        expect(page.locator("[data-part=in-force]")).to_contain_text("in force since")
    with look.town.client() as client:
        client.domains.add_host("pop", Host("h-late", 0x99, "up0"))
        try:
            expect(page.locator("[data-part=in-force]")).to_contain_text("behind: 1 host, since")
        finally:
            client.domains.remove_host("pop", "h-late")
    expect(page.locator("[data-part=in-force]")).to_contain_text("(the domain has no host yet)")


def test_a_lost_service_is_told_and_comes_back_by_itself(look: Look) -> None:
    look.sign_in(look.town.member, "/project/shop")
    look.town.stop_service()
    banner = look.page.get_by_role("alert").filter(has_text="does not answer")
    try:
        expect(banner).to_be_visible()
        look.picture("service-lost")
    finally:
        look.town.start_service()
    expect(banner).to_be_hidden()
    expect(look.page.get_by_text("Busiest rules")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_buttons_can_be_read_on_their_ground(look: Look, theme: str) -> None:
    look.sign_in(look.town.member)
    look.page.evaluate(f"localStorage.setItem('aclflow-theme', '{theme}')")
    look.open("/project/shop/acl")
    expect(look.page.locator(f"body.body--{theme}")).to_be_visible()
    ground = look.page.locator("body").evaluate("each => getComputedStyle(each).backgroundColor")
    for name in ("Import", "Export"):
        ink = look.page.get_by_role("button", name=name).evaluate("each => getComputedStyle(each).color")
        assert contrast(ink, ground) >= 4.5, name


def contrast(one: str, other: str) -> float:
    """How far apart two colours (``rgb(1, 2, 3)``) are in brightness: WCAG 2.2, contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_signing_out_forgets_the_token(look: Look) -> None:
    look.sign_in(look.town.member)
    look.page.get_by_label("Account").click()
    look.page.get_by_text("Sign out").click()
    expect(look.page).to_have_url(re.compile("/login"))
    look.open("/project/shop/acl")
    expect(look.page).to_have_url(re.compile("/login"))


def test_times_are_shown_in_the_zone_of_who_looks(look: Look) -> None:
    with look.town.client() as client:
        created = next(client.acls.read_versions("shop")).created
    look.sign_in(look.town.member, "/project/shop/history")
    hour = (created.hour + (2 if 4 <= created.month <= 9 else 1)) % 24
    if created.month in (3, 10):
        pytest.skip("the clocks change in this month")
    expect(look.page.get_by_text(f"{hour:02d}:{created:%M:%S}").first).to_be_visible()

"""Every page, light and dark: labels for screen readers, contrast (WCAG 2.2 AA by axe-core), and a phone's width."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from .conftest import PLACES, Look

LEVELS = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}

OF_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""What a page that can be read in light colours may fail in dark ones."""

STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"
"""Colours and dialogs are as they will be, at once."""

UNDER_DIALOGS = {"color-contrast": {"enabled": False}}
"""Of what is in a dialog, axe takes the dimmed page below for the ground; its colours are those of pages."""


def said(violation: dict[str, Any]) -> str:
    """What axe has against a page, and where."""
    places = "; ".join(f"{node['target']} {node['html'][:160]}" for node in violation["nodes"][:4])
    return f"{violation['id']}: {violation['help']} at {places}"


def violations(look: Look, rules: dict[str, Any] | None = None, tried: dict[str, Any] = LEVELS) -> list[str]:
    look.page.add_style_tag(content=STILL)
    found = Axe().run(look.page, options=tried | {"rules": rules or {}}).response["violations"]
    return [said(each) for each in found]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read_by_everybody(look: Look, theme: str) -> None:
    look.sign_in(look.town.admin)
    look.page.evaluate(f"localStorage.setItem('aclflow-theme', '{theme}')")
    found = {}
    for path in PLACES:
        look.open(path)
        expect(look.page.locator(f"body.body--{theme}")).to_be_visible()
        found[path] = violations(look, tried=LEVELS if theme == "light" else OF_COLOURS)
    assert "\n".join(f"{path}: {each}" for path, some in found.items() for each in some) == ""


def test_dialogs_can_be_read_by_everybody(look: Look) -> None:
    look.sign_in(look.town.admin)
    for path, button in {
        "/project/shop/acl": "New rule",
        "/project/shop/groups": "New group",
        "/admin/domains": "Bring in a host",
        "/admin/placement": "Settings",
        "/admin/operator-rules": "New rule",
        "/identity/tenants": "New tenant",
        "/identity/tokens": "New token",
    }.items():
        look.open(path)
        look.page.get_by_role("button", name=button).first.click()
        expect(look.page.get_by_role("dialog")).to_be_visible()
        assert violations(look, UNDER_DIALOGS) == [], button


def test_dialogs_of_a_tenant_can_be_read_by_everybody(look: Look) -> None:
    look.sign_in(look.town.admin, "/identity/tenants")
    for button in ("Edit bank", "Delete bank"):
        look.page.get_by_role("button", name=button).press("Enter")
        expect(look.page.get_by_role("dialog")).to_be_visible()
        assert violations(look, UNDER_DIALOGS) == [], button
        look.page.keyboard.press("Escape")
        expect(look.page.get_by_role("dialog")).to_have_count(0)
        look.has_focus(button)


def test_the_way_of_a_packet_fits_a_phone_as_a_whole(look: Look) -> None:
    """No box is cut at the right, nor hidden behind a scroll."""
    look.sign_in(look.town.member)
    look.page.set_viewport_size({"width": 390, "height": 844})
    look.open("/project/shop/trace?source=192.0.2.70&destination=198.51.100.20&port=22")
    boxes = look.page.locator("ol.way li")
    expect(boxes).to_have_count(3)
    for number in range(3):
        place = boxes.nth(number).bounding_box()
        assert place is not None
        assert (place["x"] >= 0, place["x"] + place["width"] <= 390) == (True, True)
    assert violations(look) == []


def test_every_page_fits_a_phone(look: Look) -> None:
    look.sign_in(look.town.admin)
    look.page.set_viewport_size({"width": 390, "height": 844})
    wide, found = {}, {}
    for path in PLACES:
        look.open(path)
        wide[path] = look.page.evaluate("document.documentElement.scrollWidth")
        found[path] = violations(look)
        look.picture(f"phone-{path.strip('/').replace('/', '-')}")
    assert {path: width for path, width in wide.items() if width > 390} == {}
    assert "\n".join(f"{path}: {each}" for path, some in found.items() for each in some) == ""

"""Somebody before the console of a lab, in Chromium."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, expect

WITHIN_S = 60.0
WITHIN_MS = WITHIN_S * 1000
COMPLETE = ".page[aria-busy=false]"


@dataclass
class Visitor:
    """Somebody before the console, and what the browser had against it."""

    page: Page
    console: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.console + path)
        self.page.wait_for_selector(COMPLETE)

    def sign_in(self, token: str) -> None:
        self.page.goto(f"{self.console}/login")
        self.page.get_by_label("Access token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_selector(COMPLETE)

    def sees(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=WITHIN_MS)

    def presses(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def commits(self) -> None:
        self.presses("Review and commit")
        self.page.wait_for_selector(COMPLETE)
        self.presses("Commit")
        self.sees("In force on every host")
        self.presses("Done")
        self.page.wait_for_selector(COMPLETE)

    @classmethod
    def comes(cls, browser: Browser, console: str) -> Visitor:
        """A new visitor, not signed in yet, with a window of 1280 by 800."""
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.set_default_timeout(WITHIN_MS)
        visitor = cls(page, console)
        page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        return visitor

"""The walks of `docs/walks.md` in the browser: done as they stand there, and the console shows what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chromium import COMPLETE
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import FilePayload, Page, expect

from .conftest import Look, Town, bare_town

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"^## (?P<title>[^\n]+), in the browser$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```browser\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
GIVEN = {"router.cfg": ROOT / "orchestrator" / "lab" / "policies" / "shop.cisco"}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A service and a console in which there is nothing but the operator's token."""
    with bare_town(tmp_path_factory.mktemp("walks")) as here:
        yield here


@dataclass
class Walker:
    """Somebody in front of the console, who does what a line of the page says.

    Of several buttons or fields of a name the last is meant: that of the dialog that is open.
    """

    look: Look
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def page(self) -> Page:
        return self.look.page

    def take(self, line: str) -> None:
        """Do one line. Raises KeyError for a verb that is none."""
        verb, _, words = line.partition(" ")
        self.verbs[verb](words.strip())

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        return {
            "open": self.open,
            "type": self.type,
            "press": self.press,
            "follow": self.follow,
            "pick": self.pick,
            "give": self.give,
            "note": self.note,
            "see": lambda text: expect(self.page.get_by_text(text).first).to_be_visible(),
            "miss": lambda text: expect(self.page.get_by_text(text)).to_have_count(0),
        }

    def open(self, path: str) -> None:
        self.look.open(path)

    def type(self, words: str) -> None:
        label, _, text = words.partition(": ")
        self.page.get_by_label(label, exact=True).last.fill(self.tokens.get(text, text))

    def press(self, name: str) -> None:
        self.page.wait_for_selector(COMPLETE)
        self.page.get_by_role("button", name=name, exact=True).last.click()

    def follow(self, name: str) -> None:
        self.page.wait_for_selector(COMPLETE)
        self.page.get_by_role("link", name=name, exact=True).first.click()
        self.page.wait_for_selector(COMPLETE)

    def pick(self, words: str) -> None:
        label, _, option = words.partition(": ")
        self.page.get_by_label(label, exact=True).last.click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def give(self, name: str) -> None:
        file = FilePayload(name=name, mimeType="text/plain", buffer=GIVEN[name].read_bytes())
        self.page.set_input_files("input[type=file]", [file])

    def note(self, what: str) -> None:
        """Keep what the dialog shows only once."""
        self.tokens[what] = self.page.get_by_role("dialog").locator(".mono").inner_text()


def walks() -> dict[str, list[str]]:
    """The lines of each walk, by its title."""
    return {
        section["title"]: [
            line for block in _BLOCK.finditer(section["text"]) for line in block["text"].splitlines() if line.strip()
        ]
        for section in _SECTION.finditer(PAGE)
    }


def test_the_page_walks_with_an_operator_a_tenant_and_a_newcomer() -> None:
    assert [*walks()] == ["An operator", "A tenant", "A newcomer"]


def test_what_the_page_shows_is_what_is_seen(look: Look) -> None:
    """One after the other in one browser; a line that cannot be done, or shows something else, is named."""
    walker = Walker(look, {"the operator's token": look.town.admin})
    done = 0
    for title, lines in walks().items():
        assert lines[1].startswith("type "), title
        for line in lines:
            try:
                walker.take(line)
            except (AssertionError, KeyError, PlaywrightError) as error:
                raise AssertionError(f"{title}: {line}") from error
            done += 1
    assert done > 70
    with look.town.client() as client:
        assert [rule.id for rule in client.acls.read_rules("shop")] == ["permit-tcp-443"]
        assert [rule.id for rule in client.domains.read_operator_rules("pop1")] == ["no-smb"]

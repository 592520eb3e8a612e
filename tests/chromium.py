"""Debian's Chromium, which tests of the console look through."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""Without windows where that is installed: it takes a third less of the processor."""
COMPLETE = ".page[aria-busy=false], body.sign-in"
"""What a page says of itself when everything it shows is drawn."""

PICTURES = os.environ.get("ACLFLOW_SCREENSHOTS")
"""Where pictures of the pages are kept; nowhere by default."""
_SHOWN = Path(__file__).parents[1] / "docs" / "console.md"
_SETTLES_MS = 600


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for as long as the block runs; where there is none, the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def keep_picture(page: Page, name: str) -> None:
    """Keep what a page looks like, where pictures are wanted and the docs show one of this name."""
    if PICTURES and f"{name}.png" in re.findall(r"console/([\w-]+\.png)", _SHOWN.read_text()):
        page.wait_for_selector(COMPLETE)
        page.wait_for_timeout(_SETTLES_MS)
        page.screenshot(path=Path(PICTURES) / f"{name}.png")

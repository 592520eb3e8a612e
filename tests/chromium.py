"""Debian's Chromium, which tests of the console look through."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from patience import PATIENCE_S
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = shutil.which("chromium")


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

"""Suite console: page times of a long list in a browser, cost of open dashboards.

A page's clock starts with the navigation and stops when the page says that it is complete (`aria-busy` of its main
part), which is when everything it shows has been read and drawn. Dashboards are overviews in browser windows of their
own, each signed in by itself, left open while counters move every second; what they cost is processor time of the
console's process, and of the service's beside it, less what the service takes while nobody looks.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.bench.benchlab import ran_s
from orchestrator.bench.console.stage import TENANT, Stage, stage
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import Missing
from orchestrator.extras import needs_extra

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_RULES = 20_000
_PAGE_S = Target(1.0)
_CORE = Target(15.0)
_CONTENT_S = Target(1.0)
_DASHBOARDS = 20
_SETTLE_S = 5.0
_PATIENCE_MS = 60_000
_COMPLETE = ".page[aria-busy=false]"

_PAGES: Mapping[str, str] = MappingProxyType(
    {
        "overview": f"/project/{TENANT}",
        "acl": f"/project/{TENANT}/acl",
        "acl_search": f"/project/{TENANT}/acl?q=10.1.2.3:443",
        "review": f"/project/{TENANT}/review",
        "trace": f"/project/{TENANT}/trace?source=10.1.2.3&destination=198.51.100.7&port=443",
        "check": f"/project/{TENANT}/check",
        "hits": f"/project/{TENANT}/hits",
        "packets": f"/project/{TENANT}/packets",
        "groups": f"/project/{TENANT}/groups",
        "history": f"/project/{TENANT}/history",
        "topology": "/admin/topology",
        "domains": "/admin/domains",
        "placement": "/admin/placement",
        "firewalls": "/admin/firewalls",
        "edge": "/admin/edge",
        "events": "/admin/events",
        "tenants": "/identity/tenants",
        "tokens": "/identity/tokens",
    }
)
"""Every page, by what its figure is called."""

_PARTS: Mapping[str, str] = MappingProxyType(
    {"difference": "review_difference_s", "findings": "review_findings_s", "cost": "review_whole_s"}
)
"""The parts of a review, in the order in which they come, by what their figure is called."""

_TOLD: Mapping[str, Target | None] = MappingProxyType(
    {
        "findings_of_a_new_list_s": None,
        "findings_of_a_changed_list_s": _CONTENT_S,
        "review_difference_s": _CONTENT_S,
        "review_findings_s": _CONTENT_S,
        "review_whole_s": None,
    }
)
"""The figures of reports on a list that nobody looked at yet, with their targets."""


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` loads pages less often, and watches for a shorter time."""
    loads, watched_s = (3, 20.0) if quick else (15, 60.0)
    results = Results("console", {"rules": _RULES, "loads": loads, "dashboards": _DASHBOARDS, "watched_s": watched_s})
    steps = Steps(progress, 6 + loads)
    steps.next("a service with a long list")
    with stage(_RULES) as ground, _browser() as browser:
        steps.next("pages, for the first time")
        page = _signed_in(browser, ground)
        for path in _PAGES.values():
            _load_s(page, ground, path)
        taken: dict[str, list[float]] = {name: [] for name in _PAGES}
        for turn in range(loads):  # interleaved, so that all meet the same machine
            steps.next(f"pages, round {turn + 1} of {loads}")
            for name, path in _PAGES.items():
                taken[name].append(_load_s(page, ground, path))
        steps.next("what is said about a list that was changed")
        content = _content_s(page, ground, loads)
        page.close()
        steps.next("nobody looks")
        idle = _core_percent(ground, watched_s)
        steps.next(f"{_DASHBOARDS} dashboards of one person")
        together = _measure_watching(browser, ground, [ground.token] * _DASHBOARDS, watched_s)
        steps.next(f"{_DASHBOARDS} dashboards of as many people")
        apart = _measure_watching(browser, ground, _tokens(ground), watched_s)
    for name, seconds in content.items():
        results.figures[name] = Figure.of(seconds, "s", _TOLD.get(name))
    _record_pages(results, taken)
    _record_dashboards(results, idle, together, apart)
    return results


@contextmanager
def _browser() -> Iterator[Browser]:
    """Chromium as the machine has it. Raises Missing."""
    program = shutil.which("chromium")
    if program is None:
        raise Missing("there is no chromium on this machine: install the package chromium")
    with needs_extra("bench", "driving a browser"):
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- not everybody measures the console
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def _signed_in(browser: Browser, ground: Stage, token: str = "") -> Page:
    """A window of its own, with a session of its own."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(f"{ground.console}/login#token={token or ground.token}")
    page.wait_for_url(lambda url: "/login" not in url)
    return page


def _load_s(page: Page, ground: Stage, path: str) -> float:
    """Seconds from asking for a page until it is complete."""
    started = time.perf_counter()
    page.goto(ground.console + path, wait_until="commit")
    page.wait_for_selector(_COMPLETE)
    return time.perf_counter() - started


def _content_s(page: Page, ground: Stage, rounds: int) -> dict[str, list[float]]:
    """Measure seconds until pages show new content: a list, a change, a draft."""
    taken: dict[str, list[float]] = {name: [] for name in _TOLD}
    with ground.client() as client:
        for turn in range(rounds):
            client.acls.put(TENANT, synthetic(_RULES, seed=2 + turn), etag=client.acls.read(TENANT).etag)
            taken["findings_of_a_new_list_s"].append(_load_s(page, ground, _PAGES["overview"]))
            client.acls.delete_rule(TENANT, f"r{turn}")
            taken["findings_of_a_changed_list_s"].append(_load_s(page, ground, _PAGES["overview"]))
            _move_a_rule(page, ground)
            started = time.perf_counter()
            page.goto(ground.console + _PAGES["review"], wait_until="commit")
            for part, name in _PARTS.items():
                page.wait_for_selector(f"[data-part={part}][aria-busy=false]")
                taken[name].append(time.perf_counter() - started)
            _discard_changes(page, ground)
    return taken


def _move_a_rule(page: Page, ground: Stage) -> None:
    page.goto(ground.console + _PAGES["acl"])
    page.wait_for_selector(_COMPLETE)
    page.locator("[data-focus$='/place']").first.press("ArrowDown")
    page.get_by_text("1 change not committed").wait_for()


def _discard_changes(page: Page, ground: Stage) -> None:
    page.goto(ground.console + _PAGES["acl"])
    page.wait_for_selector(_COMPLETE)
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("button", name="Discard all").click()
    page.get_by_text("1 change not committed").wait_for(state="hidden")


def _tokens(ground: Stage) -> list[str]:
    """A token for each of as many people as there are dashboards."""
    with ground.client() as client:
        return [client.tokens.create("admin", description=f"person {number}")[1] for number in range(_DASHBOARDS)]


def _measure_watching(browser: Browser, ground: Stage, tokens: Sequence[str], watched_s: float) -> tuple[float, float]:
    """Measure the cost of open overviews, one for each token."""
    windows = [_signed_in(browser, ground, token) for token in tokens]
    for window in windows:
        _load_s(window, ground, _PAGES["overview"])
    time.sleep(_SETTLE_S)
    taken = _core_percent(ground, watched_s)
    for window in windows:
        window.context.close()
    return taken


def _core_percent(ground: Stage, watched_s: float) -> tuple[float, float]:
    """How much of a core the console and the service take meanwhile, in percent."""
    pids = ground.console_pid, ground.service_pid
    before, started = [ran_s(pid) for pid in pids], time.monotonic()
    time.sleep(watched_s)
    passed = time.monotonic() - started
    console, service = (100 * (ran_s(pid) - then) / passed for pid, then in zip(pids, before, strict=True))
    return console, service


def _record_pages(results: Results, taken: Mapping[str, list[float]]) -> None:
    for name, seconds in taken.items():
        results.figures[f"page_{name}_s"] = Figure.of(seconds, "s", _PAGE_S)
        turns = tuple(float(turn) for turn in range(1, len(seconds) + 1))
        results.series.append(Series(name, turns, tuple(seconds), "load", "a page of 20,000 rules (s)"))
    results.notes.append(f"{_RULES} rules; one in twenty of them decides packets every second")
    results.notes.append("findings_of_a_new_list_s: the overview, from the answer to its upload; nobody looked before")
    results.notes.append("review_*_s: from opening the review of a moved rule until each part is there")


def _record_dashboards(
    results: Results, idle: tuple[float, float], together: tuple[float, float], apart: tuple[float, float]
) -> None:
    for prefix, (console, service) in (("dashboards_20", together), ("dashboards_of_20", apart)):
        more = service - idle[1]
        results.figures[f"{prefix}_core_percent"] = Figure.of([console + more], "% of a core", _CORE)
        results.figures[f"{prefix}_console_percent"] = Figure.of([console], "% of a core")
        results.figures[f"{prefix}_service_percent"] = Figure.of([more], "% of a core")
    results.figures["nobody_looks_console_percent"] = Figure.of([idle[0]], "% of a core")
    results.figures["nobody_looks_service_percent"] = Figure.of([idle[1]], "% of a core")
    results.notes.append("dashboards_20: windows of one person; dashboards_of_20: of twenty with a token each")
    results.notes.append("dashboards_*_service_percent: what the service takes beyond what it takes when nobody looks")
    results.notes.append("the browser's own processor time is not counted; it runs on the same cores")

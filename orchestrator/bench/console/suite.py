"""The suite `console`: how long each page of a long list takes in a browser, and what twenty open dashboards cost.

A page's clock starts with the navigation and stops when the page says that it is complete (`aria-busy` of its main
part), which is when everything it shows has been read and drawn. Dashboards are overviews in browser windows of their
own, each signed in by itself, left open while counters move every second; what they cost is processor time of the
console's process, and of the service's beside it, less what the service takes while nobody looks.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.bench.console.stage import TENANT, Stage, stage
from orchestrator.bench.ground import ran_s
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.errors import Missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_RULES = 20_000
_PAGE_S = Target(1.0)
_CORE = Target(15.0)
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


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` loads each page less often and watches the dashboards for a shorter time."""
    loads, watched_s = (3, 20.0) if quick else (15, 60.0)
    results = Results("console", {"rules": _RULES, "loads": loads, "dashboards": _DASHBOARDS, "watched_s": watched_s})
    steps = Steps(progress, 4 + loads)
    steps.next("a service with a long list")
    with stage(_RULES) as ground, _browser() as browser:
        steps.next("pages, for the first time")
        page = _signed_in(browser, ground)
        first = {name: _load_s(page, ground, path) for name, path in _PAGES.items()}
        taken: dict[str, list[float]] = {name: [] for name in _PAGES}
        for turn in range(loads):  # interleaved, so that all meet the same machine
            steps.next(f"pages, round {turn + 1} of {loads}")
            for name, path in _PAGES.items():
                taken[name].append(_load_s(page, ground, path))
        compared = _review_s(page, ground)
        page.close()
        steps.next("nobody looks")
        idle = _core_percent(ground, watched_s)
        steps.next(f"{_DASHBOARDS} dashboards")
        open_windows = [_signed_in(browser, ground) for _ in range(_DASHBOARDS)]
        for window in open_windows:
            _load_s(window, ground, _PAGES["overview"])
        time.sleep(_SETTLE_S)
        watching = _core_percent(ground, watched_s)
    results.figures["findings_first_s"] = Figure.of([first["overview"]], "s")
    results.figures["review_of_a_change_s"] = Figure.of([compared], "s")
    _record(results, taken, idle, watching)
    return results


@contextmanager
def _browser() -> Iterator[Browser]:
    """Chromium as the machine has it. Raises Missing."""
    program = shutil.which("chromium")
    if program is None:
        raise Missing("there is no chromium on this machine: install the package chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- not everybody measures the console
    except ModuleNotFoundError:
        raise Missing("driving a browser needs playwright: install aclflow[bench]") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def _signed_in(browser: Browser, ground: Stage) -> Page:
    """A window of its own, with a session of its own."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(f"{ground.console}/login#token={ground.token}")
    page.wait_for_url(lambda url: "/login" not in url)
    return page


def _load_s(page: Page, ground: Stage, path: str) -> float:
    """Seconds from asking for a page until it is complete."""
    started = time.perf_counter()
    page.goto(ground.console + path, wait_until="commit")
    page.wait_for_selector(_COMPLETE)
    return time.perf_counter() - started


def _review_s(page: Page, ground: Stage) -> float:
    """Seconds until a moved rule is compared with the list as it is: findings and costs of both are looked for."""
    page.goto(ground.console + _PAGES["acl"])
    page.wait_for_selector(_COMPLETE)
    page.locator("[data-focus$='/place']").first.press("ArrowDown")
    page.get_by_text("1 change not committed").wait_for()
    return _load_s(page, ground, _PAGES["review"])


def _core_percent(ground: Stage, watched_s: float) -> tuple[float, float]:
    """How much of a core the console and the service take meanwhile, in percent."""
    pids = ground.console_pid, ground.service_pid
    before, started = [ran_s(pid) for pid in pids], time.monotonic()
    time.sleep(watched_s)
    passed = time.monotonic() - started
    console, service = (100 * (ran_s(pid) - then) / passed for pid, then in zip(pids, before, strict=True))
    return console, service


def _record(
    results: Results,
    taken: Mapping[str, list[float]],
    idle: tuple[float, float],
    watching: tuple[float, float],
) -> None:
    for name, seconds in taken.items():
        results.figures[f"page_{name}_s"] = Figure.of(seconds, "s", _PAGE_S)
        turns = tuple(float(turn) for turn in range(1, len(seconds) + 1))
        results.series.append(Series(name, turns, tuple(seconds), "load", "a page of 20,000 rules (s)"))
    console, service = watching
    more = service - idle[1]
    results.figures["dashboards_20_core_percent"] = Figure.of([console + more], "% of a core", _CORE)
    results.figures["dashboards_20_console_percent"] = Figure.of([console], "% of a core")
    results.figures["dashboards_20_service_percent"] = Figure.of([more], "% of a core")
    results.figures["nobody_looks_console_percent"] = Figure.of([idle[0]], "% of a core")
    results.figures["nobody_looks_service_percent"] = Figure.of([idle[1]], "% of a core")
    results.notes.append(f"{_RULES} rules; one in twenty of them decides packets every second")
    results.notes.append("findings_first_s: the overview before anybody looked at this version of the list")
    results.notes.append("dashboards_20_service_percent: what the service takes beyond what it takes when nobody looks")
    results.notes.append("the browser's own processor time is not counted; it runs on the same cores")

"""Suite console: page times of a long list in a browser, cost of open dashboards.

A page's clock starts with the navigation and stops when the page says that it is complete (`aria-busy` of its main
part), which is when everything it shows has been read and drawn. Dashboards are overviews in browser windows of their
own, each signed in by itself, left open while counters move every second; what they cost is processor time of the
console's process, and of the service's beside it, less what the service takes while nobody looks.

The measured set-up (`stage`) is a service with a long list and moving counters, and a console. Both are processes of
their own, in a directory that goes when the stage does; nothing of it needs root. The reports of a switch's controller
are made here, once a second: a part of all rules has decided packets since.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.bench.benchlab import ran_s
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client, Host
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import Missing, Unreachable
from orchestrator.extras import needs_extra
from orchestrator.lab.processes import free_port, wait_until_up
from orchestrator.lab.service import COMMAND, administrators_token
from orchestrator.policy.addresses import Prefix
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import U64, sum_rows
from orchestrator.program.program import Program, Tier

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOMAIN, TENANT, HOST = "bench", "lab", "host1"
_PATIENCE_S = 60.0
_REPORT_S = 1.0
_MOVED = 0.05
"""Which part of all rules decides packets between two reports."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running processes: addresses, process ids, and an administrator's token."""

    url: str
    console: str
    token: str
    service_pid: int
    console_pid: int

    def client(self) -> Client:
        """An administrator's client; close it when done."""
        return Client(self.url, self.token)


@contextmanager
def stage(rules: int) -> Iterator[Stage]:
    """Run a stage whose tenant has `rules` rules, during the block.

    Raises Unreachable.
    """
    with TemporaryDirectory(prefix="aclflow-console-") as folder, ExitStack() as stack:
        token = administrators_token(Path(folder), "the suite")
        url, console = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        service = stack.enter_context(_running(["serve", "--port", url.rpartition(":")[2]], Path(folder)))
        with Client(url, token) as client:
            wait_until_up(service, client.is_ready)
            _fill_domain(client, rules)
        arguments = ["console", "--url", url, "--port", console.rpartition(":")[2]]
        shown = stack.enter_context(_running(arguments, Path(folder)))
        wait_until_up(shown, lambda: _is_listening(int(console.rpartition(":")[2])))
        stack.enter_context(_counting(url, token))
        yield Stage(url, console, token, service.pid, shown.pid)


def _fill_domain(client: Client, rules: int) -> None:
    client.domains.create(DOMAIN)
    client.tenants.create(TENANT, domain=DOMAIN, prefixes=[Prefix.parse("0.0.0.0/0"), Prefix.parse("::/0")])
    client.domains.add_host(DOMAIN, Host(HOST, 0xB1, "up0"))
    client.acls.put(TENANT, synthetic(rules))


@contextmanager
def _running(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of aclflow's processes; its words go to a file of the folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
    ours = {"ACLFLOW_STATE_DIR": str(folder), "ACLFLOW_PLAIN_HTTP": "yes", "ACLFLOW_AUDIT_SYSLOG": "none"}
    settings = {**own, **ours}
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, *arguments], env=settings, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _counting(url: str, token: str) -> Iterator[None]:
    """Report once a second what the rules decided, during the block."""
    with Client(url, token) as admin:
        enrolment = admin.enrolment.enrol(admin.enrolment.invite(DOMAIN), name="controller-1", kind="openflow")
    stop = threading.Event()
    with Client(url, enrolment.token) as enforcer:
        enforcer.points.begin_epoch(DOMAIN, enrolment.enforcer)
        reporter = threading.Thread(target=_report_counts, args=(enforcer, enrolment.enforcer, stop), daemon=True)
        reporter.start()
        try:
            yield
        finally:
            stop.set()
            reporter.join()


def _report_counts(enforcer: Client, number: int, stop: threading.Event) -> None:
    cookies = _cookies(enforcer)
    dice = np.random.default_rng(1)
    sequence = enforcer.points.claim_counts(DOMAIN, number, HOST).sequence
    while not stop.wait(_REPORT_S):
        moved = np.sort(dice.choice(cookies, max(1, int(len(cookies) * _MOVED)), replace=False))
        packets = dice.integers(1, 100, len(moved))
        now = time.monotonic_ns() // 1000
        sequence += 1
        counts = sum_rows(moved, packets, packets * 100, packets * 0, packets * 0 + now)
        frame = CountFrame(HOST, sequence, counts, (), b"chunk", whole=False)
        enforcer.points.report_counts(DOMAIN, number, encode_frames([frame], now))


def _cookies(enforcer: Client) -> U64:
    """The cookies of every rule of the list."""
    program = enforcer.points.watch_program(DOMAIN)
    if not isinstance(program, Program):
        raise Unreachable("the service gives no program")
    rule = Cookie(Tier.HOST, Kind.RULE).pack() >> 48
    found = {row.cookie for row in program.flows.rows() if row.table == Table.INGRESS and row.cookie >> 48 == rule}
    return np.array(sorted(found), np.uint64)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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

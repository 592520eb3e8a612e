"""A service with a little town in it, a console in front of it, and a browser that looks at the console."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
from chromium import COMPLETE, chromium, keep_picture
from command_line import ForkedCommand
from patience import PATIENCE_S, until
from playwright.sync_api import Browser, BrowserContext, Error, Page
from playwright.sync_api import TimeoutError as Timeout

from orchestrator import bootstrap
from orchestrator.client import Client
from orchestrator.lab.processes import free_port
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.settings import Settings
from orchestrator.store.records import Role

CUT_OFF = "ERR_NETWORK_CHANGED"
RETRIES = 3
FOCUSED = """(name) => {
  const at = document.activeElement;
  const label = at && (at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent);
  return !!label && label.includes(name);
}"""

SHOP = {
    "groups": {
        "office": {"prefixes": ["192.0.2.0/25", "192.0.2.200/32"], "description": "our offices"},
        "web": {"prefixes": ["198.51.100.16/28"], "description": "front ends"},
    },
    "rules": [
        {
            "id": "ssh-contractors", "action": "deny", "protocol": "tcp", "source": "192.0.2.64/26",
            "destination_ports": 22, "description": "contractors stay out",
        },
        {"id": "ssh-office", "action": "permit", "protocol": "tcp", "source": "@office", "destination_ports": 22},
        {"id": "web-in", "action": "permit", "protocol": "tcp", "destination": "@web", "destination_ports": [80, 443]},
        {
            "id": "dns", "action": "permit", "protocol": "udp", "destination": "198.51.100.53/32",
            "destination_ports": 53,
        },
        {"id": "ping", "action": "permit", "protocol": "icmp", "icmp_type": 8, "source": "192.0.2.0/24"},
        {"id": "late", "action": "permit", "protocol": "tcp", "source": "192.0.2.70/32", "destination_ports": 22},
        {"id": "db-out", "direction": "egress", "action": "deny", "protocol": "tcp", "destination_ports": 5432},
    ],
}  # fmt: skip

PLACES = {
    "/project/shop": "Busiest rules",
    "/project/shop/acl": "ssh-contractors",
    "/project/shop/trace": "Source address",
    "/project/shop/check": "Never decides",
    "/project/shop/expectations": "Nothing is expected yet",
    "/project/shop/draft": "No draft is shared",
    "/project/shop/hits": "decided nothing so far",
    "/project/shop/packets": "No rule of this list has its log on",
    "/project/shop/groups": "@office",
    "/project/shop/history": "Version 1",
    "/project/shop/approvals": "Nothing waits for approval",
    "/project/shop/review": "There is nothing to commit",
    "/admin": "All is in force",
    "/admin/topology": "every packet from outside",
    "/admin/domains": "No host yet",
    "/admin/operator-rules": "No rule yet",
    "/admin/operator-rules/review": "There is nothing to commit",
    "/admin/approvals": "aclflow domain approval set pop",
    "/admin/placement": "No rule is lifted",
    "/admin/firewalls": "No firewall VNF yet",
    "/admin/edge": "No point of presence yet",
    "/admin/events": "acl.replaced",
    "/identity/tenants": "Web shop",
    "/identity/tokens": "the operator",
}
"""Every page, and something that it shows of the little town."""


@dataclass
class Town:
    """A running service and console. `service` can be ended and started again."""

    directory: Path
    url: str
    console: str
    admin: str
    member: str
    reader: str
    service: ForkedCommand = field(repr=False)

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token or self.admin)

    def stop_service(self) -> None:
        self.service.kill()

    def start_service(self) -> None:
        self.service = _serve(self.directory, self.url)


def _serve(directory: Path, url: str) -> ForkedCommand:
    own = {"ACLFLOW_STATE_DIR": str(directory), "ACLFLOW_LOG_LEVEL": "error", "ACLFLOW_AUDIT_SYSLOG": "none"}
    environment = {**os.environ, **own}
    process = ForkedCommand("serve", "--port", url.rpartition(":")[2], environment=environment)
    with Client(url, "nobody") as client:
        _until(client.is_ready, process)
    return process


def _until(ready: Callable[[], bool], process: ForkedCommand) -> None:
    def is_so() -> bool:
        assert process.ended is None, "it has ended"
        return ready()

    until(is_so, what=lambda: "it is not ready in time")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/login", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def _console(url: str, options: Sequence[str]) -> Iterator[str]:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACLFLOW_", "PYTEST_"))}
    process = ForkedCommand("console", "--url", url, "--port", str(port), *options, environment=environment)
    here = f"http://127.0.0.1:{port}"
    try:
        _until(lambda: _answers(here), process)
        yield here
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


@contextmanager
def bare_town(directory: Path, *options: str) -> Iterator[Town]:
    """A running service and console, with nothing in them but an operator's token. `options` are the console's."""
    settings = Settings(state_dir=directory)
    admin = bootstrap.create_token(settings, Role.ADMIN, description="the operator").secret
    url = f"http://127.0.0.1:{free_port()}"
    here = Town(directory, url, "", admin, "", "", _serve(directory, url))
    try:
        with _console(url, options) as here.console:
            yield here
    finally:
        here.stop_service()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with bare_town(tmp_path_factory.mktemp("town")) as here, here.client() as client:
        client.domains.create("pop")
        client.tenants.create("shop", domain="pop", name="Web shop", prefixes=[Prefix.parse("198.51.100.0/24")])
        client.tenants.create("bank", domain="pop", name="Bank", prefixes=[Prefix.parse("203.0.113.0/24")])
        client.acls.put("shop", acl_from_json(SHOP))
        _, here.member = client.tokens.create("member", tenant="shop", description="shop's engineer")
        _, here.reader = client.tokens.create("reader", tenant="shop")
        yield here


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def new_window(browser: Browser) -> BrowserContext:
    """What one person looks through; it loads once what every page is made with.

    It is left to the browser, which ends all of its contexts at once: Chromium sometimes never answers the command that
    ends one alone.
    """
    window = browser.new_context(viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin")
    window.set_default_timeout(PATIENCE_S * 1000)
    return window


@pytest.fixture(scope="module")
def window(browser: Browser) -> BrowserContext:
    """The window of a module's tests, one after the other."""
    return new_window(browser)


@dataclass
class Look:
    """A browser window on the console, and what went wrong in it."""

    page: Page
    town: Town
    complaints: list[str] = field(default_factory=list)

    def sign_in(self, token: str, path: str = "") -> None:
        """Sign in on the sign-in page, which leads on to a page; without a path that is home, as it is being drawn."""
        self.page.goto(f"{self.town.console}/login?{urlencode({'next': path or '/'})}#token={token}")
        self.page.wait_for_url(lambda url: "/login" not in url)
        if path and not self._is_drawn():
            self.open(path)

    def open(self, path: str) -> None:
        for _ in range(RETRIES):
            self.page.goto(self.town.console + path)
            if self._is_drawn():
                return

    def _is_drawn(self) -> bool:
        """Wait until the page is whole; return whether that is so, and nothing of it was cut off."""
        with suppress(Timeout):
            self.page.wait_for_selector(COMPLETE, timeout=PATIENCE_S * 1000 / 4)
            return not self.was_cut_off()
        if self.was_cut_off():
            return False
        self.page.wait_for_selector(COMPLETE)
        return not self.was_cut_off()

    def leave(self) -> None:
        """Leave the console; a page that is just then going elsewhere is left once it is there."""
        for _ in range(RETRIES):
            with suppress(Error):
                self.page.goto("about:blank")
                return
        self.page.goto("about:blank")

    def was_cut_off(self) -> bool:
        """Whether the browser dropped its connections, as it does where interfaces come and go; forgets that."""
        ours = [said for said in self.complaints if CUT_OFF not in said]
        cut, self.complaints[:] = len(ours) < len(self.complaints), ours
        return cut

    def has_focus(self, name: str) -> None:
        """Wait until the keyboard is at something of an accessible name."""
        self.page.wait_for_function(FOCUSED, arg=name)

    def picture(self, name: str) -> None:
        keep_picture(self.page, name)


@pytest.fixture
def look(town: Town, window: BrowserContext) -> Iterator[Look]:
    """A page that is 1280 by 800, of a browser that knows nothing of earlier ones.

    Every complaint of the browser, and every request to elsewhere, fails the test.
    """
    window.clear_cookies()
    page = window.new_page()
    kept = {"origin": town.console, "storageTypes": "local_storage"}
    window.new_cdp_session(page).send("Storage.clearDataForOrigin", kept)
    look = Look(page, town)
    page.on("console", lambda said: look.complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: look.complaints.append(str(error)))
    page.on("request", lambda request: _check_is_ours(look, request.url))
    yield look
    look.leave()
    assert look.complaints == []


def _check_is_ours(look: Look, url: str) -> None:
    ours = (look.town.console, look.town.console.replace("http://", "ws://"), "data:", "blob:")
    if not url.startswith(ours):
        look.complaints.append(f"a request to {url}")


@pytest.fixture
def the_list_as_it_was(look: Look) -> None:
    """The test begins with the list of the town."""
    with look.town.client() as client:
        client.acls.put("shop", acl_from_json(SHOP))


def draft_deletion(look: Look, rule: str) -> None:
    """Delete a rule of the shop in a member's draft."""
    look.sign_in(look.town.member, "/project/shop/acl")
    look.page.get_by_label(f"More for {rule}").click()
    look.page.get_by_text("Delete", exact=True).click()


def discard(page: Page) -> None:
    """Forget the draft, and be sure of it."""
    page.get_by_role("button", name="Discard", exact=True).click()
    page.get_by_role("button", name="Discard all").click()

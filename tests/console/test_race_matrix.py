"""Two people write the same thing at once, each by command line, REST or browser: nothing goes without a word.

Shared drafts are no part of it: each has an id of its own, and nobody can change one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import pytest
from command_line import aclflow
from interleaving import happen_before
from playwright.sync_api import Browser, BrowserContext, Page, expect

from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import GroupName

from .conftest import SHOP, Look, Town, new_window

OLD = "everybody reaches 198.51.100.53:53/udp"
WAYS = ("command line", "REST", "browser")
REFUSED = ("meanwhile", "nothing was written", "read it again")
"""What somebody is told whose write was refused."""
Meanwhile = Callable[[], object]


@dataclass
class Person:
    """Somebody who writes by one of the ways: `word` is found in what they write, `address` as well."""

    word: str
    address: str
    town: Town
    window: BrowserContext
    client: Client
    token: str
    patch: pytest.MonkeyPatch
    on_exit: ExitStack

    def run(self, verb: str, meanwhile: Meanwhile, *words: str, stdin: str = "") -> str:
        """Call a command; `meanwhile` happens after everything was shown and before `verb` writes. What it said."""
        happen_before(self.patch, verb, lambda _: meanwhile())
        service = {"ACLFLOW_URL": self.town.url, "ACLFLOW_TOKEN": self.token}
        ended = aclflow(*words, stdin=stdin, environment=service)
        return ended.out + ended.err

    def page(self, path: str) -> Page:
        """A page of the console, in a window of their own."""
        self.window.clear_cookies()
        look = Look(self.on_exit.enter_context(closing(self.window.new_page())), self.town)
        look.sign_in(self.token, path)
        return look.page

    def commit(self, page: Page, meanwhile: Meanwhile) -> str:
        """Review and commit a draft; where somebody was faster, look again, or leave it. What the page said."""
        page.get_by_role("button", name="Review and commit").click()
        expect(page.locator("[data-part=difference][aria-busy=false]")).to_be_visible()
        meanwhile()
        page.get_by_role("button", name="Commit", exact=True).click()
        again = page.get_by_role("button", name="Review again")
        leave, done = page.get_by_text("Leave my draft as it is"), page.get_by_text("In force on every host")
        expect(again.or_(leave).or_(done).first).to_be_visible()
        if leave.is_visible():
            return page.get_by_role("dialog").inner_text()
        if again.is_visible():
            again.click()
            page.get_by_role("button", name="Commit", exact=True).click()
        expect(done).to_be_visible()
        return ""


# --------------------------------------------------------------------------------------------------- operator's rules


def rule_by_command(me: Person, meanwhile: Meanwhile) -> str:
    words = f"--deny -p tcp -s {me.address} -d any --port 25 --yes --no-wait"
    return me.run("domains.set_operator_rules", meanwhile, "operator-rule", "add", "pop", me.word, *words.split())


def rule_over_rest(me: Person, meanwhile: Meanwhile) -> str:
    seen = me.client.domains.read_operator_rules_with_etag("pop")
    meanwhile()
    new = rule_from_json({"id": me.word, "action": "deny", "source": me.address})
    me.client.domains.set_operator_rules("pop", [*seen.rules, new], etag=seen.etag)
    return ""


def rule_by_browser(me: Person, meanwhile: Meanwhile) -> str:
    page = me.page("/admin/operator-rules")
    page.get_by_role("button", name="New rule").click()
    for label, value in {"Name": me.word, "Source": me.address, "Destination": "any"}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("dialog").get_by_role("button", name="deny").click()
    page.get_by_role("button", name="Keep in draft").click()
    return me.commit(page, meanwhile)


# ------------------------------------------------------------------------------------------------------------- groups


def group_by_command(me: Person, meanwhile: Meanwhile) -> str:
    members = me.client.acls.read("shop").acl.groups[GroupName("office")].prefixes
    return me.run("groups.put", meanwhile, "group", "put", "shop", "office", *map(str, members), me.address)


def group_over_rest(me: Person, meanwhile: Meanwhile) -> str:
    seen = me.client.acls.read("shop")
    meanwhile()
    office = seen.acl.groups[GroupName("office")]
    wanted = replace(office, prefixes=(*office.prefixes, Prefix.parse(me.address)))
    me.client.groups.put("shop", wanted, etag=seen.etag)
    return ""


def group_by_browser(me: Person, meanwhile: Meanwhile) -> str:
    page = me.page("/project/shop/groups")
    page.locator(".panel", has_text="@office").get_by_role("button", name="Edit").click()
    members = page.get_by_label("Members, one a line")
    members.fill(f"{members.input_value()}\n{me.address}")
    page.get_by_role("button", name="Keep in draft").click()
    return me.commit(page, meanwhile)


# ------------------------------------------------------------------------------------------------------- expectations


def sentences(me: Person) -> str:
    return f"{OLD}\neverybody reaches 198.51.100.53:53/udp except {me.address} # {me.word}"


def expectation_by_command(me: Person, meanwhile: Meanwhile) -> str:
    command = ("acl", "expectations", "set", "shop", "-", "--yes")
    return me.run("expectations.keep", meanwhile, *command, stdin=sentences(me))


def expectation_over_rest(me: Person, meanwhile: Meanwhile) -> str:
    etag = me.client.expectations.read("shop").etag
    meanwhile()
    me.client.expectations.keep("shop", sentences(me), etag=etag)
    return ""


def expectation_by_browser(me: Person, meanwhile: Meanwhile) -> str:
    page = me.page("/project/shop/expectations")
    expect(page.get_by_text("All 1 expectation kept")).to_be_visible()
    page.get_by_label("Expectations").fill(sentences(me))
    meanwhile()
    page.get_by_role("button", name="Keep").click()
    alert, kept = page.get_by_role("alert").filter(has_text="meanwhile"), page.get_by_text("of 2").first
    expect(alert.or_(page.get_by_text("All 2 expectations kept")).or_(kept).first).to_be_visible()
    return alert.inner_text() if alert.count() else ""


# ------------------------------------------------------------------------------------------------------------ waivers


def waiver_by_command(me: Person, meanwhile: Meanwhile) -> str:
    words = ("acl", "waiver", "add", "shop", "shadowed", "late", "-m", f"{me.word}'s reason", "--ends", "in 4w")
    return me.run("waivers.add", meanwhile, *words)


def waiver_over_rest(me: Person, meanwhile: Meanwhile) -> str:
    meanwhile()
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    return str(me.client.waivers.add("shop", "shadowed", ["late"], reason=f"{me.word}'s reason", ends=ends).replaced)


def waiver_by_browser(me: Person, meanwhile: Meanwhile) -> str:
    page = me.page("/project/shop/check")
    page.get_by_role("button", name="Waive shadowed of late").click()
    page.get_by_label("Why may it stay so?").fill(f"{me.word}'s reason")
    meanwhile()
    page.get_by_role("button", name="Waive it").click()
    expect(page.locator("[data-part=waived]")).to_contain_text(f"{me.word}'s reason")
    return " ".join(page.get_by_role("alert").all_inner_texts())


# ----------------------------------------------------------------------------------------------------------- the table

ACTS: dict[str, tuple[Callable[[Person, Meanwhile], str], ...]] = {
    "operator rules": (rule_by_command, rule_over_rest, rule_by_browser),
    "groups": (group_by_command, group_over_rest, group_by_browser),
    "expectations": (expectation_by_command, expectation_over_rest, expectation_by_browser),
    "waivers": (waiver_by_command, waiver_over_rest, waiver_by_browser),
}
FOUND: dict[str, Callable[[Client], object]] = {
    "operator rules": lambda client: [str(rule.source) for rule in client.domains.read_operator_rules("pop")],
    "groups": lambda client: [str(each) for each in client.groups.read_members("shop", "office")],
    "expectations": lambda client: client.expectations.read("shop").text,
    "waivers": lambda client: [waiver.reason for waiver in client.waivers.read_all("shop")],
}


@pytest.fixture(scope="module")
def windows(browser: Browser) -> tuple[BrowserContext, BrowserContext]:
    """Mine and a colleague's."""
    return new_window(browser), new_window(browser)


@pytest.fixture
def two(
    town: Town, windows: tuple[BrowserContext, BrowserContext], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Person, Person]]:
    """Me and a colleague, before things as they were."""
    with ExitStack() as ending:
        people = []
        whose = (("mine", "203.0.113.7"), ("theirs", "203.0.113.8"))
        for (word, address), window in zip(whose, windows, strict=True):
            with town.client() as admin:
                made, token = admin.tokens.create("admin", description=word)
            client = ending.enter_context(town.client(token))
            people.append(Person(word, address, town, window, client, token, monkeypatch, ending))
            ending.callback(_revoke, town, made.id)
        me = people[0].client
        me.acls.put("shop", acl_from_json(SHOP))
        me.expectations.keep("shop", OLD)
        yield people[0], people[1]
        me.domains.set_operator_rules("pop", [])
        me.expectations.delete("shop")
        for waiver in me.waivers.read_all("shop"):
            me.waivers.remove("shop", waiver.id)


def _revoke(town: Town, token: str) -> None:
    with town.client() as admin:
        admin.tokens.revoke(token)


@pytest.mark.parametrize("theirs", range(3), ids=[f"they by {way}" for way in WAYS])
@pytest.mark.parametrize("mine", range(3), ids=[f"I by {way}" for way in WAYS])
@pytest.mark.parametrize("kind", ACTS)
def test_nothing_is_lost_without_a_word(two: tuple[Person, Person], kind: str, mine: int, theirs: int) -> None:
    """A colleague writes after I was shown what is there: it stays or is told to me, and so does what is mine."""
    me, colleague = two
    try:
        said = ACTS[kind][mine](me, lambda: ACTS[kind][theirs](colleague, lambda: None))
    except AclflowError as error:
        said = str(error)
    found = str(FOUND[kind](me.client))
    assert colleague.address in found or colleague.word in found + said, said
    assert me.address in found or me.word in found or any(word in said for word in REFUSED), said

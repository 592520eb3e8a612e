"""Counts of rules in a real browser: from when they are, and what a rule that was deleted and restored has of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from orchestrator.client import Client, Host
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import sum_rows
from orchestrator.program.program import Program, Tier
from orchestrator.store.engine import open_store

from .conftest import Look, Town, discard
from .test_operator_pages import now_us, numbers_of

RULES = [
    {"id": name, "action": "permit", "protocol": "tcp", "destination_ports": port}
    for name, port in (("web", 443), ("mail", 25))
]


@dataclass
class Counting:
    """A host of the domain, and who reports what its rules decided."""

    admin: Client
    enforcer: Client
    number: int
    since: dt.datetime
    rule: int
    sequence: int

    def decides(self, packets: int) -> None:
        """So many packets more meet the rule `web`."""
        self.sequence += 1
        cookies = np.array([Cookie(Tier.HOST, Kind.RULE, self.rule).pack()], np.uint64)
        column = np.array([packets], np.int64)
        counts = sum_rows(cookies, column, column * 100, column * 0, column * 0 + now_us())
        frame = CountFrame("host1", self.sequence, counts, (), b"chunk", whole=False)
        assert self.enforcer.points.report_counts("pop", self.number, encode_frames([frame], 2_000_000)) == ()


@pytest.fixture(scope="module")
def counting(town: Town) -> Iterator[Counting]:
    """A host that is counted since two days, as long as the list has its rules."""
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)
    with town.client() as admin:
        admin.domains.add_host("pop", Host("host1", 0xA1, "up0"))
        enrolment = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="controller-1", kind="openflow")
        town.stop_service()
        store = open_store(f"sqlite:///{town.directory / 'aclflow.db'}", clock=lambda: then)
        with store.write() as unit:
            unit.counting.claim("pop", "host1", 0)
            unit.acls.replace("shop", acl_from_json({"rules": RULES}), author="an earlier day")
        store.close()
        town.start_service()
        with town.client(enrolment.token) as enforcer:
            enforcer.points.begin_epoch("pop", enrolment.enforcer)
            program = enforcer.points.watch_program("pop")
            assert isinstance(program, Program)
            claim = enforcer.points.claim_counts("pop", enrolment.enforcer, "host1")
            yield Counting(admin, enforcer, enrolment.enforcer, then, numbers_of(program)[0], claim.sequence)


def counted(page: Page, rule: str) -> Locator:
    return page.get_by_role("row", name=rule).get_by_role("cell").nth(1)


def said_in_berlin(time: dt.datetime) -> str:
    return f"{time.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%d %H:%M}"


def test_an_unused_rule_says_since_when_nothing_met_it(look: Look, counting: Counting) -> None:
    """A rule that met packets is not among them, one that is too new is told apart."""
    page = look.page
    counting.decides(1200)
    new = acl_from_json({"rules": [{**RULES[0], "id": "new", "source": "192.0.2.9/32"}]}).rules[0]
    counting.admin.acls.insert_rule("shop", new)
    look.sign_in(look.town.member, "/project/shop/hits")
    page.get_by_label("Show", exact=True).click()
    page.get_by_role("option", name="unused for a day").click()
    expect(page.get_by_text("1 rule of 3; 1 rule not watched for so long")).to_be_visible()
    since = f"none since {said_in_berlin(counting.since)}"
    expect(page.get_by_role("row", name="mail")).to_contain_text(since)
    expect(page.get_by_role("row", name="mail")).to_contain_text("(2 days)")
    for other in ("web", "new"):
        expect(page.get_by_role("row", name=other)).to_have_count(0)
    counting.admin.acls.delete_rule("shop", "new")


def test_a_review_says_first_what_traffic_a_change_closes(look: Look, counting: Counting) -> None:
    """A rule that decided packets today is dangerous to delete, red; one that nothing met is not."""
    page = look.page
    counting.decides(34)
    look.sign_in(look.town.member, "/project/shop/acl")
    for rule, says, danger in (
        ("mail", "Closes rule 'mail', which decided no packet in the last 24 hours.", "text-warning"),
        ("web", "Closes rule 'web', which decided 1,234 packets in the last 24 hours.", "text-negative"),
    ):
        page.get_by_label(f"More for {rule}").click()
        page.get_by_text("Delete", exact=True).click()
        page.get_by_role("button", name="Review and commit").click()
        said = page.locator("[data-part=headline]").get_by_text(says)
        expect(said).to_be_visible()
        assert danger in (said.get_attribute("class") or "")
        look.open("/project/shop/acl")
        discard(page)


def test_counts_say_from_when_they_are_and_outlive_a_rule_that_comes_back(look: Look, counting: Counting) -> None:
    """A member wipes the list and takes the version before back: the rule goes on counting where it was."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/hits")
    expect(counted(page, "web")).to_have_text("1\u202f234")
    since = f"counted since {said_in_berlin(counting.since)}"
    expect(page.get_by_text(f"1 rule of 2 decided nothing so far; {since}")).to_be_visible()
    version = counting.admin.acls.read("shop").version
    counting.admin.acls.put("shop", acl_from_json({"rules": []}))
    look.open("/project/shop/history")
    panel = page.locator(".panel", has_text=f"Version {version}").first
    panel.get_by_role("button", name="Roll back to it").click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    look.open("/project/shop/hits")
    expect(counted(page, "web")).to_have_text("1\u202f234")
    counting.decides(66)
    expect(counted(page, "web")).to_have_text("1\u202f300")
    page.get_by_label("Show", exact=True).click()
    page.get_by_role("option", name="unused for a day").click()
    expect(page.get_by_text("0 rules of 2; 2 rules not watched for so long")).to_be_visible()


def test_counts_that_move_close_no_menu_and_take_nothing_that_is_typed(look: Look, counting: Counting) -> None:
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    shown = page.locator("tbody tr", has_text="web").locator(".counted")
    expect(shown).not_to_be_empty()
    before = shown.inner_text()
    page.get_by_label("More for web").click()
    delete = page.get_by_text("Delete", exact=True)
    expect(delete).to_be_visible()
    counting.decides(1000)
    expect(shown).not_to_have_text(before)
    expect(delete).to_be_visible()
    page.keyboard.press("Escape")
    look.has_focus("More for web")
    before = shown.inner_text()
    page.get_by_label("Edit source of web").click()
    cell = page.get_by_label("source of web", exact=True)
    cell.fill("192.0.2.77")
    counting.decides(1000)
    expect(shown).not_to_have_text(before)
    expect(cell).to_have_value("192.0.2.77")
    counts = shown.inner_text()
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    expect(shown).to_have_text(counts)
    discard(page)

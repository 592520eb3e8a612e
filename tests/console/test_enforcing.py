"""The wait after a commit, in a real browser: who holds the list turns green, and who lags is seen to lag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, expect

from orchestrator.client import Client, Host, PointReport
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.wire.enrolment import Enrolment

from .conftest import Look, Town

DOMAIN, TENANT, HOST, FIREWALL = "quarter", "cafe", "host7", "fw7"
RULE = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 443}


@dataclass
class Points:
    """Those who speak for the domain's host and for its firewall."""

    town: Town
    admin: Client
    speaks: dict[str, Enrolment]

    def report(self, point: str, state: str, error: str | None = None) -> None:
        """Say that a point was read back at the newest generation, or why it cannot be brought there."""
        generation = self.admin.domains.read(DOMAIN).generation
        said = PointReport(point, generation if error is None else generation - 1, bytes(16), state, error)
        enrolment = self.speaks[point]
        with self.town.client(enrolment.token) as enforcer:
            enforcer.points.begin_epoch(DOMAIN, enrolment.enforcer)
            enforcer.points.report(DOMAIN, enrolment.enforcer, points=[said])


@pytest.fixture(scope="module")
def points(town: Town) -> Iterator[Points]:
    with town.client() as admin:
        admin.domains.create(DOMAIN)
        admin.tenants.create(TENANT, domain=DOMAIN, prefixes=[Prefix.parse("198.18.64.0/24")])
        admin.domains.add_host(DOMAIN, Host(HOST, 0xB7, "up0"))
        admin.firewalls.add(DOMAIN, FIREWALL, "nftables")
        controller = admin.enrolment.enrol(admin.enrolment.invite(DOMAIN), name="controller-7", kind="openflow")
        firewall = admin.enrolment.enrol(admin.enrolment.invite(DOMAIN), name=FIREWALL, kind="nftables")
        yield Points(town, admin, {HOST: controller, FIREWALL: firewall})


def commit(look: Look, token: str) -> Locator:
    """Begin with one rule, take it away in the browser, and commit that: the dialog that waits."""
    look.sign_in(token, f"/project/{TENANT}/acl")
    page = look.page
    page.get_by_label("More for web").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    return page.get_by_role("dialog")


def test_a_firewall_that_lags_is_shown_to_lag_until_it_does_not(look: Look, points: Points) -> None:
    points.admin.acls.put(TENANT, acl_from_json({"rules": [RULE]}))
    waits = commit(look, look.town.admin)
    host, firewall = (waits.locator(".row", has_text=name) for name in (HOST, FIREWALL))
    expect(firewall).to_contain_text("never reported")
    points.report(HOST, "enforced")
    expect(host).to_contain_text("in force")
    expect(host.locator(".text-positive")).to_be_visible()
    expect(firewall).to_contain_text("never reported")
    points.report(FIREWALL, "refused", "its table of sets is full")
    expect(firewall).to_contain_text("its table of sets is full")
    expect(firewall.locator(".text-negative")).to_be_visible()
    expect(waits.get_by_text("In force on every host")).to_have_count(0)
    points.report(FIREWALL, "enforced")
    expect(firewall.locator(".text-positive")).to_be_visible()
    expect(waits.get_by_text("In force on every host")).to_be_visible()
    waits.get_by_role("button", name="Done").click()


def test_a_member_is_told_how_many_lag_and_may_go_on(look: Look, points: Points) -> None:
    points.admin.acls.put(TENANT, acl_from_json({"rules": [RULE]}))
    _, member = points.admin.tokens.create("member", tenant=TENANT)
    waits = commit(look, member)
    expect(waits.get_by_text("2 enforcement points behind")).to_be_visible()
    points.report(HOST, "enforced")
    expect(waits.get_by_text("1 enforcement point behind")).to_be_visible()
    expect(waits).not_to_contain_text(FIREWALL)
    waits.get_by_role("button", name="Go on without waiting").click()
    expect(look.page.get_by_text("No rules yet").first).to_be_visible()

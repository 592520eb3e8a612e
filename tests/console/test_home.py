"""The operator's home in a real browser: each kind of trouble comes with a page and a command that help, and goes."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from command_line import aclflow
from patience import until
from playwright.sync_api import Locator, Page, expect

from orchestrator.client import Client, Host, PointReport
from orchestrator.identity.authority import Authority
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.store.engine import open_store

from .conftest import Look
from .test_accessible import violations

DOMAIN, CONTROLLER = "ring", "controller-9"
HOSTS = ("h-refused", "h-drifted", "h-disconnected", "h-well")


@dataclass
class Ring:
    """A domain with four hosts, and the controller that speaks for them."""

    look: Look
    admin: Client
    enforcer: Client
    number: int

    def report(self, host: str, state: str, error: str | None = None) -> None:
        generation = self.admin.domains.read(DOMAIN).generation
        said = PointReport(host, generation, bytes(16), state, error)
        self.enforcer.points.report(DOMAIN, self.number, points=[said])

    @property
    def concerns(self) -> Locator:
        return self.look.page.locator("[data-part=concerns]")

    def concern(self, name: str) -> Locator:
        """The panel about somebody; the page it leads to is named so."""
        link = self.look.page.get_by_role("link", name=f"Look at {name}", exact=True)
        return self.concerns.locator(".panel").filter(has=link)

    def types_its_command(self, name: str) -> str:
        """Type the command that the page shows beside a concern, and return what it prints."""
        command = self.concern(name).locator(".mono").inner_text()
        program, *words = shlex.split(command)
        assert program == "aclflow"
        service = {"ACLFLOW_URL": self.look.town.url, "ACLFLOW_TOKEN": self.look.town.admin}
        ended = aclflow(*words, environment=service)
        assert ended.code == 0, ended.err
        return ended.out


@pytest.fixture
def ring(look: Look) -> Iterator[Ring]:
    """An operator at home, where all is well so far."""
    with look.town.client() as admin:
        admin.domains.create(DOMAIN)
        enrolment = admin.enrolment.enrol(admin.enrolment.invite(DOMAIN), name=CONTROLLER, kind="openflow")
        for number, host in enumerate(HOSTS):
            admin.domains.add_host(DOMAIN, Host(host, 0xC0 + number, "up0"))
        with look.town.client(enrolment.token) as enforcer:
            enforcer.points.begin_epoch(DOMAIN, enrolment.enforcer)
            ring = Ring(look, admin, enforcer, enrolment.enforcer)
            for host in HOSTS:
                ring.report(host, "enforced")
            look.sign_in(look.town.admin, "/admin")
            yield ring
        for host in admin.domains.read_hosts(DOMAIN):
            admin.domains.remove_host(DOMAIN, host.name)
        admin.points.remove(DOMAIN, enrolment.enforcer)
        admin.domains.delete(DOMAIN)


def test_hosts_that_refuse_drift_or_are_gone_are_told_worst_first(ring: Ring) -> None:
    """Each with what it says, the command that says more, and the page; they go as soon as they are in force."""
    page = ring.look.page
    said = {
        "h-refused": ("refused", "text-of-the-switch: its table is full"),
        "h-drifted": ("drifted", "3 flows that nobody asked for"),
        "h-disconnected": ("disconnected", "its switch hung up"),
    }
    for host, (state, error) in said.items():
        ring.report(host, state, error)
    for host, (state, error) in said.items():
        panel = ring.concern(host)
        expect(panel).to_contain_text(f"{host}: {error}")
        expect(panel.locator(".chip.bad")).to_have_text(state)
        expect(panel).to_contain_text("since")
        printed = ring.types_its_command(host)
        assert host in printed
        assert f"{state}: {error}" in printed
    expect(ring.concern("h-well")).to_have_count(0)
    told = [name.strip() for name in ring.concerns.locator(".panel .chip").all_inner_texts()]
    assert told == ["refused", "drifted", "disconnected"]
    assert violations(ring.look) == []
    page.get_by_role("link", name="Look at h-drifted").click()
    expect(page).to_have_url(f"{ring.look.town.console}/admin/domains#{DOMAIN}")
    expect(page.get_by_role("row", name="h-drifted")).to_contain_text("3 flows that nobody asked for")
    ring.look.open("/admin")
    for host in said:
        ring.report(host, "enforced")
        expect(ring.concern(host)).to_have_count(0)


def test_a_controller_that_falls_silent_is_told_until_it_speaks(ring: Ring) -> None:
    """It was heard once; nobody says anything for it until the page has noticed."""
    panel = ring.concern(CONTROLLER)
    expect(panel).to_contain_text(f"{CONTROLLER} was not heard of for")
    expect(panel).to_contain_text("its hosts keep what they enforce")
    expect(panel.locator(".chip.bad")).to_have_text("silent")
    assert CONTROLLER in ring.types_its_command(CONTROLLER)
    page = ring.look.page
    page.get_by_role("link", name=f"Look at {CONTROLLER}").click()
    expect(page.get_by_role("row", name=CONTROLLER)).to_contain_text("ago")
    ring.look.open("/admin")

    def is_heard() -> bool:
        ring.report("h-well", "enforced")
        return panel.count() == 0

    until(is_heard)


@pytest.fixture
def ending(look: Look) -> Page:
    """An operator at home, when a switch's certificate of thirty days has three left, and was not renewed."""
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=27)
    authority = Authority.create("a town", then)
    bearer = Subject(Usage.SWITCH, "pop", "s-ends")
    issued = authority.issue(bearer, new_key().public_key(), then, dt.timedelta(days=30))
    store = open_store(f"sqlite:///{look.town.directory / 'aclflow.db'}", clock=lambda: then)
    with store.write() as unit:
        unit.certificates.keep(issued)
    store.close()
    look.sign_in(look.town.admin, "/admin")
    return look.page


def test_a_certificate_that_ends_is_told_before_it_does(look: Look, ending: Page) -> None:
    """Until it is renewed, or withdrawn as here."""
    panel = ending.locator("[data-part=concerns] .panel", has_text="s-ends")
    expect(panel).to_contain_text("the certificate of s-ends ends on")
    expect(panel.locator(".chip")).to_have_text("certificate")
    expect(panel).to_contain_text("aclflow certificates list")
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.admin}
    (line,) = (
        each for each in aclflow("certificates", "list", environment=service).out.splitlines() if "s-ends" in each
    )
    assert aclflow("certificates", "revoke", line.split()[0], environment=service).code == 0
    expect(panel).to_have_count(0)

"""What an operator does for tenants in a browser: rules above their lists, prefixes, quotas, and an end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import aclflow
from playwright.sync_api import Page, expect

from orchestrator.client import Host
from orchestrator.errors import NotFound, Unauthenticated
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.wire.tenants import Limits

from .conftest import Look

BLOCKED = {"id": "blocked", "action": "deny", "source": "203.0.113.66/32"}
KIOSK = {"id": "till", "action": "permit", "protocol": "tcp", "destination": "192.0.2.241/32", "destination_ports": 443}
PAGE = "/admin/operator-rules"


@pytest.fixture
def page(look: Look) -> Iterator[Page]:
    """An operator at the rules of a domain that has none."""
    look.sign_in(look.town.admin, PAGE)
    yield look.page
    with look.town.client() as client:
        client.domains.set_operator_rules("pop", [])


def write_rule(page: Page, name: str, action: str, source: str, destination: str = "any") -> None:
    page.get_by_role("button", name="New rule").click()
    for label, value in {"Name": name, "Source": source, "Destination": destination}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("dialog").get_by_role("button", name=action).click()
    page.get_by_role("button", name="Keep in draft").click()


def rules_of(look: Look) -> list[str]:
    with look.town.client() as client:
        return [rule.id for rule in client.domains.read_operator_rules("pop")]


def test_an_address_is_blocked_for_every_tenant(look: Look, page: Page) -> None:
    """Typed, reviewed in sentences and packets, committed; then changed, moved and deleted."""
    write_rule(page, "blocked", "deny", "203.0.113.66")
    assert rules_of(look) == []
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied for every tenant")).to_be_visible()
    expect(page.get_by_text("It holds for 2 tenants of pop")).to_be_visible()
    expect(page.get_by_text("ingress deny any 203.0.113.66/32 > any")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    assert rules_of(look) == ["blocked"]
    look.open(PAGE)
    write_rule(page, "monitor", "permit", "203.0.113.7")
    page.get_by_label("More for monitor").click()
    page.get_by_text("Move up", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("monitor")
    page.get_by_label("More for blocked").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("No longer denied for every tenant")).to_be_visible()
    expect(page.get_by_text("What was denied for every tenant is left to other rules")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    assert rules_of(look) == ["monitor"]


def test_a_rule_that_opens_everything_is_called_that(page: Page) -> None:
    write_rule(page, "all", "permit", "any")
    page.get_by_role("button", name="Review and commit").click()
    said = page.locator("[data-part=difference]").get_by_text("Opens every port of every address to everyone.")
    expect(said).to_be_visible()
    assert "text-negative" in (said.get_attribute("class") or "")


def test_two_operators_at_once_lose_nothing(look: Look, page: Page) -> None:
    write_rule(page, "mine", "deny", "203.0.113.7")
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied for every tenant")).to_be_visible()
    with look.town.client() as client:
        client.domains.set_operator_rules("pop", [rule_from_json(BLOCKED)])
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("Newly denied for every tenant")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    assert sorted(rules_of(look)) == ["blocked", "mine"]


def test_what_operator_rules_cannot_say_is_told_at_its_field(page: Page) -> None:
    page.get_by_role("button", name="New rule").click()
    for label, value in {"Name": "late", "Source": "@office", "Destination": "any"}.items():
        page.get_by_label(label, exact=True).fill(value)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="deny").click()
    page.get_by_role("button", name="Keep in draft").click()
    expect(dialog.get_by_text("no address group is called 'office'")).to_be_visible()
    page.get_by_label("Source", exact=True).fill("any")
    page.get_by_label("Ends").fill("2090-01-01T00:00:00Z")
    page.get_by_role("button", name="Keep in draft").click()
    expect(dialog.get_by_text("does not end by itself")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("late")


@pytest.fixture
def kiosk(look: Look) -> Iterator[Page]:
    """An operator at the tenants, one of whom is called kiosk."""
    with look.town.client() as client:
        client.tenants.create("kiosk", domain="pop", name="Kiosk", prefixes=[Prefix.parse("192.0.2.240/28")])
        client.acls.put("kiosk", acl_from_json({"rules": [KIOSK]}))
    look.sign_in(look.town.admin, "/identity/tenants")
    yield look.page
    with look.town.client() as client:
        if "kiosk" in [each.id for each in client.tenants.read_all()]:
            client.tenants.delete("kiosk")


def test_a_tenant_is_given_a_name_prefixes_and_a_quota(look: Look, kiosk: Page) -> None:
    """What is wrong is told with its field and line, and what was typed stays."""
    kiosk.get_by_role("button", name="Edit kiosk").click()
    kiosk.get_by_label("Quota of rules").fill("ten")
    kiosk.get_by_label("Name").fill("Kiosk at the gate")
    kiosk.get_by_role("button", name="Save").click()
    expect(kiosk.get_by_role("alert").filter(has_text="Quota of rules: 'ten' is not such a number")).to_be_visible()
    kiosk.get_by_label("Quota of rules").fill("9" * 20)
    kiosk.get_by_role("button", name="Save").click()
    expect(
        kiosk.get_by_role("alert").filter(has_text=f"Quota of rules: '{'9' * 20}' is not such a number")
    ).to_be_visible()
    kiosk.get_by_label("Quota of rules").fill("10")
    kiosk.get_by_label("Prefixes it owns").fill("192.0.2.240/28\n192.0.2.300/32")
    kiosk.get_by_role("button", name="Save").click()
    expect(kiosk.get_by_role("alert").filter(has_text="Prefixes, line 2")).to_be_visible()
    kiosk.get_by_label("Prefixes it owns").fill("198.51.100.0/28")
    kiosk.get_by_role("button", name="Save").click()
    expect(kiosk.get_by_role("alert").filter(has_text="198.51.100.0/28")).to_be_visible()
    kiosk.get_by_label("Prefixes it owns").fill("192.0.2.240/28\n2001:db8:7::/64")
    kiosk.get_by_role("button", name="Save").click()
    expect(kiosk.get_by_text("quota: 10 rules")).to_be_visible()
    with look.town.client() as client:
        seen = client.tenants.read("kiosk")
    assert (seen.name, seen.prefixes) == ("Kiosk at the gate", ("192.0.2.240/28", "2001:db8:7::/64"))
    kiosk.get_by_role("button", name="Edit kiosk").click()
    kiosk.get_by_label("Quota of rules").fill("")
    kiosk.get_by_role("button", name="Save").click()
    expect(kiosk.locator(".panel", has_text="Kiosk at the gate").get_by_text("no quota")).to_be_visible()


def test_a_tenant_goes_only_when_its_id_was_typed(look: Look, kiosk: Page) -> None:
    kiosk.get_by_role("button", name="Delete kiosk").click()
    delete = kiosk.get_by_role("button", name="Delete for good")
    expect(kiosk.get_by_text("Its list (1 rule), its history")).to_be_visible()
    expect(delete).to_be_disabled()
    kiosk.get_by_label("Type kiosk to delete it").fill("kioks")
    expect(delete).to_be_disabled()
    kiosk.get_by_label("Type kiosk to delete it").fill("kiosk")
    delete.click()
    expect(kiosk.get_by_role("button", name="Delete kiosk")).to_have_count(0)
    with look.town.client() as client:
        assert "kiosk" not in [each.id for each in client.tenants.read_all()]


def test_the_home_says_what_is_wrong_and_what_helps(look: Look, kiosk: Page) -> None:
    """A host that is behind and a quota that is used up come and go on the page by themselves."""
    with look.town.client() as client:
        look.open("/admin")
        concerns = kiosk.locator("[data-part=concerns]")
        expect(concerns).to_contain_text("All is in force")
        client.domains.add_host("pop", Host("h-late", 0x9A, "up0"))
        client.tenants.set_quota("kiosk", Limits(1, None))
        try:
            expect(concerns).to_contain_text("h-late: never reported")
            expect(concerns).to_contain_text("kiosk has 1 of 1 rules")
            expect(concerns).to_contain_text("aclflow tenant quota show kiosk")
            assert [(each.kind, each.name) for each in client.read_status().concerns] == [
                ("behind", "h-late"),
                ("quota", "kiosk"),
            ]
            kiosk.get_by_role("link", name="Look at h-late").click()
            expect(kiosk.locator("h1")).to_have_text("Domains and enforcers")
        finally:
            client.domains.remove_host("pop", "h-late")
        assert [each.kind for each in client.read_status().concerns] == ["quota"]
    with look.town.client(look.town.member) as member, pytest.raises(NotFound):
        member.read_status()


def test_the_home_says_when_the_last_backup_was_made(look: Look, page: Page, tmp_path: Path) -> None:
    """The operator types the command that the page names, beside the running service."""
    look.open("/admin")
    tile = page.locator(".tile", has_text="Last backup")
    expect(tile).to_contain_text("none known")
    expect(tile).to_contain_text("aclflow db backup FILE")
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.admin}
    assert "no backup is known" in aclflow("status", environment=service).err
    made = aclflow("db", "backup", str(tmp_path / "b"), environment={"ACLFLOW_STATE_DIR": str(look.town.directory)})
    assert (made.code, "could not note" in made.err) == (0, False)
    expect(tile).to_contain_text("ago")
    assert "last backup: 20" in aclflow("status", environment=service).err


def test_the_home_says_where_packets_of_a_tenant_are_decided(look: Look, page: Page) -> None:
    """A tier for each kind of enforcement point that the domain has; another tenant is picked."""
    look.open("/admin")
    rows = page.get_by_role("row")
    page.get_by_label("Tenant", exact=True).click()
    page.get_by_role("option", name="Bank").click()
    expect(rows.filter(has=page.get_by_role("link", name="Hosts"))).to_contain_text(
        "0 rules, 0 of them lifted ahead of the list"
    )
    expect(rows.filter(has_text="Firewall servers and VNFs")).to_have_count(0)
    with look.town.client() as client:
        client.acls.put("bank", acl_from_json({"rules": [{"id": "web", "action": "permit"}]}))
        client.firewalls.add("pop", "fw1", "nftables")
        try:
            expect(rows.filter(has=page.get_by_role("link", name="Hosts"))).to_contain_text("1 rule, 0 of them lifted")
            expect(rows.filter(has_text="Firewall servers and VNFs")).to_contain_text("ahead of the hosts")
            page.get_by_role("link", name="Firewall servers and VNFs").click()
            expect(page.locator("h1")).to_have_text("Firewalls and scaling")
        finally:
            client.firewalls.remove("pop", "fw1")


def test_hosts_come_and_go_from_the_page(look: Look) -> None:
    """One whose switch is configured, and a machine, whose steps are told as they are taken."""
    page = look.page
    look.sign_in(look.town.admin, "/admin/domains")
    page.get_by_role("button", name="Bring in a host").click()
    page.get_by_role("button", name="A switch that is configured already").click()
    page.get_by_label("Name").fill("host7")
    page.get_by_label("Uplink interface").fill("up0")
    page.get_by_role("button", name="Bring it in").click()
    expect(page.get_by_role("alert").filter(has_text="Datapath id: fill it in")).to_be_visible()
    page.get_by_label("Datapath id").fill("a7")
    page.get_by_role("button", name="Bring it in").click()
    row = page.get_by_role("row", name="host7")
    expect(row).to_contain_text("never reported")
    row.get_by_role("button", name="Remove host7").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Bring in a host").click()
    for label, value in {
        "Name": "host8",
        "Uplink interface": "up0",
        "Address of the machine": "127.0.0.2",
        "SSH port": "1",
        "Controllers of its switch": "tcp:127.0.0.1:6653",
    }.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Bring it in").click()
    expect(page.get_by_text("127.0.0.2, bridge br-aclflow")).to_be_visible()


def test_a_domain_goes_only_when_it_is_empty_and_its_id_was_typed(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.admin, "/admin/domains")
    page.get_by_role("button", name="New domain").click()
    page.get_by_label("Name").fill("attic")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("button", name="Delete attic")).to_be_visible()
    with look.town.client() as client:
        enrolment = client.enrolment.enrol(client.enrolment.invite("attic"), name="controller-4", kind="openflow")
    for name, says in (("pop", "tenant"), ("attic", "")):
        page.get_by_role("button", name=f"Delete {name}").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Delete for good")).to_be_disabled()
        dialog.get_by_label(f"Type {name} to delete it").fill(name)
        dialog.get_by_role("button", name="Delete for good").click()
        if says:
            expect(dialog.get_by_role("alert")).to_contain_text(says)
            dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Delete attic")).to_have_count(0)
    with look.town.client() as client:
        assert [domain.id for domain in client.domains.read_all()] == ["pop"]
    with look.town.client(enrolment.token) as enforcer, pytest.raises(Unauthenticated):
        enforcer.points.watch_program("attic")


def test_a_token_is_made_shown_once_and_revoked(look: Look) -> None:
    """A bearer works with it until it is revoked, and is shut out then."""
    look.sign_in(look.town.admin, "/identity/tokens")
    page = look.page
    page.get_by_role("button", name="New token").click()
    page.get_by_label("What it is for").fill("nightly audit")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    shown = page.get_by_role("dialog").locator(".mono")
    expect(shown).to_contain_text("aclflow_")
    secret = shown.inner_text()
    page.get_by_role("button", name="Done").click()
    row = page.locator(".token", has_text="nightly audit")
    expect(row).to_be_visible()
    assert secret not in page.content()
    with look.town.client(secret) as client:
        assert client.tokens.read_own().role == "member"
        row.get_by_role("button", name="Revoke").click()
        expect(page.get_by_text("Every program that uses it is shut out at once.")).to_be_visible()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.locator(".token", has_text="nightly audit")).to_have_count(0)
        with pytest.raises(Unauthenticated):
            client.tokens.read_own()


def test_an_open_page_of_a_revoked_token_goes_by_itself(look: Look) -> None:
    """Nobody clicks: what is shown goes, and no other page of the session opens."""
    with look.town.client() as client:
        record, secret = client.tokens.create("reader", tenant="shop")
        look.sign_in(secret, "/project/shop/acl")
        expect(look.page.get_by_text("ssh-office")).to_be_visible()
        client.tokens.revoke(record.id)
    look.page.wait_for_url(lambda url: "/login" in url)
    look.page.goto(f"{look.town.console}/project/shop")
    expect(look.page).to_have_url(re.compile("/login"))


def test_a_round_closes_no_menu_of_a_lifted_rule(look: Look) -> None:
    look.sign_in(look.town.admin)
    with look.town.client() as client:
        before = client.placement.read("pop").settings
        client.placement.set_wish("pop", "shop", "web-in", "pinned")
        try:
            look.open("/admin/placement")
            look.page.get_by_label("More for web-in").click()
            forbid = look.page.get_by_text("Forbid it", exact=True)
            expect(forbid).to_be_visible()
            client.placement.configure("pop", {**before, "interval_s": 77})
            expect(look.page.get_by_text("looked at every 77 s")).to_be_visible()
            expect(forbid).to_be_visible()
            forbid.click()
            expect(look.page.get_by_text("forbidden", exact=True)).to_be_visible()
        finally:
            client.placement.leave_to_chooser("pop", "shop", "web-in")
            client.placement.configure("pop", before)

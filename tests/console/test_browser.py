"""The console in a real browser, before a real service."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
from command_line import aclflow
from playwright.sync_api import Page, expect

from orchestrator.client import Host
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, TenantId

from .conftest import SHOP, Look

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
    "/project/shop/review": "There is nothing to commit",
    "/admin": "All is in force",
    "/admin/topology": "every packet from outside",
    "/admin/domains": "No host yet",
    "/admin/operator-rules": "No rule yet",
    "/admin/operator-rules/review": "There is nothing to commit",
    "/admin/placement": "No rule is lifted",
    "/admin/firewalls": "No firewall VNF yet",
    "/admin/edge": "No point of presence yet",
    "/admin/events": "acl.replaced",
    "/identity/tenants": "Web shop",
    "/identity/tokens": "the operator",
}


@pytest.fixture(autouse=True)
def the_list_as_it_was(look: Look) -> None:
    """Each test begins with the same list."""
    with look.town.client() as client:
        client.put_acl("shop", acl_from_json(SHOP))


def discard(page: Page) -> None:
    page.get_by_role("button", name="Discard", exact=True).click()
    page.get_by_role("button", name="Discard all").click()


@pytest.mark.parametrize("path", PLACES)
def test_every_page_shows_what_it_is_for(look: Look, path: str) -> None:
    look.sign_in(look.town.admin)
    look.open(path)
    expect(look.page.get_by_text(PLACES[path]).first).to_be_visible()
    expect(look.page.locator("h1")).to_be_visible()


def test_a_wrong_token_is_told_so_and_nothing_is_seen(look: Look) -> None:
    look.open("/project/shop/acl")
    expect(look.page).to_have_url(re.compile("/login"))
    look.page.get_by_label("Access token").fill("aclflow_wrong")
    look.page.get_by_role("button", name="Sign in").click()
    expect(look.page.get_by_role("alert")).to_contain_text("does not know this token")
    look.complaints.clear()  # the browser notes that the answer was 401
    look.page.get_by_label("Access token").fill(look.town.reader)
    look.page.get_by_role("button", name="Sign in").click()
    expect(look.page).to_have_url(re.compile("/project/shop/acl"))


def test_why_a_packet_is_dropped_and_how_to_let_it_in(look: Look) -> None:
    """From the page alone: ask, see the rule, add one before it, see what it opens, commit, ask again."""
    page = look.page
    look.sign_in(look.town.member)
    page.get_by_label("From address").fill("192.0.2.70")
    page.get_by_label("To address").fill("198.51.100.20")
    page.get_by_label("To port").fill("22")
    page.get_by_role("button", name="Find out").click()
    expect(page.get_by_text("Denied: rule ssh-contractors in the ingress list of shop")).to_be_visible()
    expect(page.get_by_text("host, in the list")).to_be_visible()
    page.get_by_role("button", name="Permit such packets").click()
    look.picture("rule-form")
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("ingress: tcp 192.0.2.70 > 198.51.100.20, to port 22")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    look.open("/project/shop/trace?source=192.0.2.70&destination=198.51.100.20&port=22")
    expect(page.get_by_text("Permitted: rule permit-tcp-22")).to_be_visible()
    with look.town.client() as client:
        assert next(rule.id for rule in client.rules("shop")) == "permit-tcp-22"


def test_who_asks_about_an_own_address_learns_that_pretending_is_another_matter(look: Look) -> None:
    """A packet with a forged source is dropped whatever the lists say, so the list's answer alone would mislead."""
    look.sign_in(look.town.member)
    forged = look.page.get_by_text("One that only pretends to is dropped before any list is asked")
    look.open("/project/shop/trace?source=198.51.100.20&destination=192.0.2.70&port=25")
    expect(forged).to_be_visible()
    look.open("/project/shop/trace?source=192.0.2.70&destination=198.51.100.20&port=25")
    expect(look.page.get_by_text("in the ingress list of shop")).to_be_visible()
    expect(forged).to_have_count(0)


def test_an_operator_need_not_know_whose_an_address_is(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.admin)
    look.open("/identity/tenants")
    page.get_by_label("From address").fill("192.0.2.70")
    page.get_by_label("To address").fill("198.51.100.20")
    page.get_by_label("To port").fill("23")
    page.get_by_role("button", name="Find out").click()
    expect(page).to_have_url(re.compile("/project/shop/trace"))
    expect(page.get_by_role("button", name="Permit such packets")).to_be_visible()


def test_a_link_with_a_token_works_on_the_sign_in_page_too(look: Look) -> None:
    look.open("/login")
    look.page.goto(f"{look.town.console}/login#token={look.town.member}")
    expect(look.page).to_have_url(re.compile("/project/shop$"))


def test_nothing_is_changed_before_it_is_committed(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("More for web-in").click()
    page.get_by_text("Remove", exact=True).click()
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    expect(page.get_by_text("web-in", exact=True)).to_have_count(0)
    with look.town.client() as client:
        assert "web-in" in [rule.id for rule in client.rules("shop")]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("web-in", exact=True)).to_be_visible()


def test_a_rule_is_dragged_to_another_place(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_text("ping", exact=True).drag_to(page.get_by_text("ssh-contractors", exact=True))
    expect(page.get_by_text("1 change not committed; the last: move of 'ping'")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("ping")
    discard(page)


def test_a_wrong_value_is_told_at_its_field_and_nothing_is_lost(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("2x")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("'2x' is not a port")).to_be_visible()
    expect(page.get_by_label("Destination ports")).to_have_value("2x")
    page.get_by_label("Destination ports").fill("2222")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("any port 2222")).to_be_visible()
    discard(page)


def test_a_new_rule_says_nothing_until_somebody_does(look: Look) -> None:
    """A new rule opens nothing by itself; errors are said at their fields, and the form stays with what was typed."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_role("button", name="New rule").click()
    keep = page.get_by_role("button", name="Keep in draft")
    page.get_by_label("Name").fill("dns")
    keep.click()
    expect(page.get_by_text("Source: it is empty").or_(page.get_by_text("it is empty: write prefixes"))).to_be_visible()
    page.get_by_label("Source", exact=True).fill("192.0.2.64/26")
    page.get_by_label("Destination", exact=True).fill("2001:db8::1")
    keep.click()
    expect(page.get_by_text("Action: a rule needs its `action`")).to_be_visible()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="permit").click()
    keep.click()
    expect(dialog.get_by_text("can never match")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("@nobody")
    keep.click()
    expect(dialog.get_by_text("no address group is called 'nobody'")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("203.0.113.7")
    keep.click()
    expect(dialog.get_by_text("is not among the tenant's own prefixes")).to_be_visible()
    page.get_by_label("Destination", exact=True).fill("198.51.100.7")
    keep.click()
    expect(dialog.get_by_text("is already the id of")).to_be_visible()
    expect(page.get_by_label("Source", exact=True)).to_have_value("192.0.2.64/26")
    page.get_by_label("Name").fill("contractors")
    keep.click()
    expect(page.get_by_text("'contractors' is in the draft, before 'ssh-contractors'")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("contractors")
    discard(page)


def test_a_rule_ends_and_names_ports_as_people_say_it(look: Look) -> None:
    """In the zone of the one who types; a time in the past is refused at its field."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("ssh, 2222")
    page.get_by_label("Ends").fill("2020-01-01")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_role("dialog").get_by_text("2020-01-01")).to_be_visible()
    page.get_by_label("Ends").fill("in 2h")
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_text("any port 22, 2222")).to_be_visible()
    row = page.locator("tbody tr").filter(has_text="ssh-office")
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    expect(row).to_contain_text(f"until {ends:%Y-%m-%d}")
    discard(page)


def test_a_review_says_first_what_is_dangerous(look: Look) -> None:
    """Permit any any: the review says in a sentence what that is; the history keeps what it was for."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_role("button", name="New rule").click()
    for label, value in {"Name": "all", "Source": "any", "Destination": "any"}.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("dialog").get_by_role("button", name="permit").click()
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    said = page.locator("[data-part=headline]").get_by_text("Opens every port of every address to everyone.")
    expect(said).to_be_visible()
    assert "text-negative" in (said.get_attribute("class") or "")
    above, below = said.bounding_box(), page.get_by_role("heading", name="Changes").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    page.get_by_label("What is it for?").fill("a test of the very wide kind")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("In force on every host")).to_be_visible()
    look.open("/project/shop/history")
    newest = page.locator(".panel").first
    for said in ("a test of the very wide kind", "by shop's engineer (member ", "Adds 'all'."):
        expect(newest).to_contain_text(said)


def test_whoever_looks_sees_whether_the_list_is_in_force(look: Look) -> None:
    """A host that does not hold the list yet: members learn that there is one, and the page follows by itself."""
    page = look.page
    look.sign_in(look.town.member)
    for path in (path for path in PLACES if path.startswith("/project/shop")):
        look.open(path)
        expect(page.locator("[data-part=in-force]")).to_contain_text("in force since")
    with look.town.client() as client:
        client.add_host("pop", Host("h-late", 0x99, "up0"))
        try:
            expect(page.locator("[data-part=in-force]")).to_contain_text("behind: 1 host, since")
        finally:
            client.remove_host("pop", "h-late")
    expect(page.locator("[data-part=in-force]")).to_contain_text("in force since")


def test_a_draft_is_not_thrown_away_by_a_slip(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("More for web-in").click()
    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Discard", exact=True).click()
    expect(page.get_by_text("1 change will be lost")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("1 change not committed")).to_be_visible()
    discard(page)
    expect(page.get_by_text("web-in", exact=True)).to_be_visible()


def test_a_cell_is_edited_where_it_stands(look: Look) -> None:
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("Edit source of ping").click()
    field = page.get_by_label("source of ping", exact=True)
    field.fill("192.0.2.0/33")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_role("alert").filter(has_text="192.0.2.0/33")).to_be_visible()
    page.get_by_label("Edit source of ping").click()
    expect(field).to_have_value("192.0.2.0/33")
    field.fill("@office, 203.0.113.0/24")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("1 change not committed; the last: change of 'ping'")).to_be_visible()
    expect(page.get_by_text("@office, 203.0.113.0/24")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="192.0.2.0/33")).to_have_count(0)
    discard(page)


def test_hosts_come_and_go_from_the_page(look: Look) -> None:
    """One whose switch is configured, and a machine, whose steps are told as they are taken."""
    page = look.page
    look.sign_in(look.town.admin)
    look.open("/admin/domains")
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


def test_hits_are_paged_and_unused_rules_are_told(look: Look) -> None:
    look.sign_in(look.town.member)
    look.open("/project/shop/hits")
    expect(look.page.get_by_text("1-7 of 7")).to_be_visible()
    look.page.get_by_label("Show", exact=True).click()
    look.page.get_by_role("option", name="unused for a day").click()
    expect(look.page.get_by_text("No host is counted yet")).to_be_visible()


def test_rules_are_searched_by_what_they_touch(look: Look) -> None:
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    look.page.get_by_label("Search rules").fill("udp 198.51.100.53:53 permit")
    expect(look.page.get_by_text("1 of 7 rules")).to_be_visible()
    expect(look.page.locator("tbody tr")).to_have_count(1)
    look.page.get_by_label("Search rules").fill("sctp 203.0.113.1:9")
    expect(look.page.get_by_text("No rule fits the search")).to_be_visible()


def test_a_search_for_a_connection_finds_what_decides_that(look: Look) -> None:
    """Not every rule with `any`: those that no packet reaches, and those of the other direction, are not it."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    for asked, decide in {
        "198.51.100.17:443": ["web-in"],
        "198.51.100.17:https": ["web-in"],
        "198.51.100.9:22": ["ssh-contractors", "ssh-office"],
        "203.0.113.9:5432": ["db-out"],
        "198.51.100.9:5432": [],
    }.items():
        page.get_by_label("Search rules").fill(asked)
        shown = f"{len(decide)} of 7 rules" if decide else "No rule fits the search"
        expect(page.get_by_text(shown).first).to_be_visible()
        expect(page.locator("tbody tr b")).to_have_text(decide)


def test_a_file_is_imported_into_the_draft_with_what_it_loses(look: Look) -> None:
    page = look.page
    text = (
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -d 198.51.100.0/24 -p tcp --dport 8080 -j ACCEPT\n"
        "-A FORWARD -m quota --quota 7 -j ACCEPT\nCOMMIT\n"
    )
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_role("button", name="Import").click()
    page.set_input_files(
        "input[type=file]", [{"name": "fw.iptables", "mimeType": "text/plain", "buffer": text.encode()}]
    )
    expect(page.get_by_text("1 place cannot be carried over exactly")).to_be_visible()
    page.get_by_role("button", name="Take its safe approximation").click()
    expect(page.get_by_text("the whole list, from fw.iptables")).to_be_visible()
    expect(page.get_by_text("8080").first).to_be_visible()
    discard(page)


def test_the_question_by_which_interface_is_answered_in_the_browser(look: Look) -> None:
    """As many places are inexact as the command line counts; answered, none is."""
    page = look.page
    text = (
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i eth0 -p tcp --dport 8080 -j ACCEPT\n"
        "-A FORWARD -i eth1 -p tcp --dport 22 -j ACCEPT\n"
        "-A FORWARD -i eth0 -m state --state ESTABLISHED -j ACCEPT\nCOMMIT\n"
    )
    counted = aclflow("acl", "import", "-", stdin=text).err.count("permit left out")
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_role("button", name="Import").click()
    page.set_input_files(
        "input[type=file]", [{"name": "fw.iptables", "mimeType": "text/plain", "buffer": text.encode()}]
    )
    expect(page.get_by_text(f"{counted} places cannot be carried over exactly")).to_be_visible()
    page.get_by_label("Packets come in by the interface").fill("eth0")
    expect(page.get_by_text("1 place cannot be carried over exactly")).to_be_visible()
    page.get_by_role("checkbox", name="Read connection states").click()
    page.get_by_role("button", name="Put into the draft").click()
    expect(page.get_by_text("the whole list, from fw.iptables")).to_be_visible()
    discard(page)


def test_each_endpoint_gets_its_security_group(look: Look) -> None:
    page = look.page
    web1 = Endpoint("web1", TenantId("shop"), "tap1", 0x0A0000000001, (Prefix.parse("198.51.100.17/32"),))
    with look.town.client() as client:
        client.put_endpoint("pop", web1)
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("dialog").get_by_label("Format").click()
    page.get_by_role("option", name="aws-sg").click()
    with page.expect_download() as whole:
        page.get_by_role("button", name="Download").click()
    expect(page.get_by_text("places cannot be said exactly")).to_be_visible()
    assert whole.value.suggested_filename == "shop.aws-sg.zip"
    page.get_by_role("checkbox", name="One file for each endpoint").click()
    with page.expect_download() as apart:
        page.get_by_role("button", name="Download").click()
    assert apart.value.suggested_filename == "web1.aws-sg.txt"
    assert '"ToPort": 443' in Path(apart.value.path()).read_text()
    with look.town.client() as client:
        client.remove_endpoint("pop", "web1")


def test_somebody_else_was_faster(look: Look) -> None:
    """What was edited goes on top of the newer list, to be looked at again."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("More for dns").click()
    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()
    with look.town.client() as client:
        client.delete_rule("shop", "late")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("Somebody changed the list meanwhile")).to_be_visible()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert {"dns", "late"}.isdisjoint(rule.id for rule in client.rules("shop"))


def test_two_people_changed_the_same_packets_and_nothing_typed_is_lost(look: Look) -> None:
    """One says which rules win; until then the draft is as it was, with what was said about it."""
    page = look.page
    look.sign_in(look.town.member)
    look.open("/project/shop/acl")
    page.get_by_label("Edit ssh-office").click()
    page.get_by_label("Destination ports").fill("2222")
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_label("What is it for?").fill("another door")
    expect(page.get_by_text("Newly permitted")).to_be_visible()
    with look.town.client() as client:
        client.delete_rule("shop", "late")
        client.delete_rule("shop", "ssh-office")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("rule 'ssh-office' was changed on both sides")).to_be_visible()
    page.get_by_role("button", name="Leave my draft as it is").click()
    look.open("/project/shop/acl")
    expect(page.get_by_text("any port 2222")).to_be_visible()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_label("What is it for?")).to_have_value("another door")
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Put my rules on top, and review").click()
    expect(page.get_by_text("new rule 'ssh-office'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        rules = {rule.id: rule for rule in client.rules("shop")}
        assert [str(each) for each in rules["ssh-office"].destination_ports] == ["2222"]
        assert "late" not in rules
        assert next(client.acl_versions("shop")).comment == "another door"


def test_two_browsers_commit_at_once_and_both_changes_are_there(look: Look) -> None:
    """The rules that two people add touch no packet of each other."""
    page = look.page
    look.sign_in(look.town.member)
    other = page.context.browser.new_context().new_page()
    other.goto(f"{look.town.console}/login#token={look.town.admin}")
    other.wait_for_url(lambda url: "/login" not in url)
    other.goto(f"{look.town.console}/project/shop/acl")
    look.open("/project/shop/acl")
    for who, name, source in ((page, "mine", "203.0.113.7"), (other, "theirs", "203.0.113.8")):
        who.get_by_role("button", name="New rule").click()
        for label, value in {"Name": name, "Source": source, "Destination": "198.51.100.9"}.items():
            who.get_by_label(label, exact=True).fill(value)
        who.get_by_role("dialog").get_by_role("button", name="permit").click()
        who.get_by_role("button", name="Keep in draft").click()
        who.get_by_role("button", name="Review and commit").click()
        expect(who.get_by_text("Newly permitted")).to_be_visible()
    other.get_by_role("button", name="Commit", exact=True).click()
    expect(other.get_by_text("is committed")).to_be_visible()
    other.context.close()
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("new rule 'mine'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert {"mine", "theirs"} <= {rule.id for rule in client.rules("shop")}


def test_an_older_version_is_taken_back(look: Look) -> None:
    page = look.page
    with look.town.client() as client:
        version = next(client.acl_versions("shop")).version
        client.delete_rule("shop", "web-in")
    look.sign_in(look.town.member)
    look.open("/project/shop/history")
    panel = page.locator(".panel", has_text=f"Version {version}").first
    panel.get_by_role("button", name="Roll back to it").click()
    expect(page.get_by_text(f"the whole list, from version {version}")).to_be_visible()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly permitted")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with look.town.client() as client:
        assert "web-in" in [rule.id for rule in client.rules("shop")]


def test_a_member_sees_nothing_of_another_project_nor_of_the_operator(look: Look) -> None:
    look.sign_in(look.town.member)
    for path, words in {
        "/project/bank/acl": "there is no tenant 'bank'",
        "/admin/domains": "This page is for operators",
        "/identity/tokens": "This page is for operators",
    }.items():
        look.open(path)
        expect(look.page.get_by_text(words)).to_be_visible()
    expect(look.page.get_by_text("Topology")).to_have_count(0)


def test_a_reader_is_offered_no_change(look: Look) -> None:
    look.sign_in(look.town.reader)
    look.open("/project/shop/acl")
    expect(look.page.get_by_text("ssh-office")).to_be_visible()
    for name in ("New rule", "Import", "Edit ssh-office"):
        expect(look.page.get_by_role("button", name=name)).to_have_count(0)


def test_a_lost_service_is_told_and_comes_back_by_itself(look: Look) -> None:
    look.sign_in(look.town.member)
    look.open("/project/shop")
    look.town.stop_service()
    banner = look.page.get_by_role("alert").filter(has_text="does not answer")
    try:
        expect(banner).to_be_visible()
        look.picture("service-lost")
    finally:
        look.town.start_service()
    expect(banner).to_be_hidden()
    expect(look.page.get_by_text("Busiest rules")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_buttons_can_be_read_on_their_ground(look: Look, theme: str) -> None:
    look.sign_in(look.town.member)
    look.page.evaluate(f"localStorage.setItem('aclflow-theme', '{theme}')")
    look.open("/project/shop/acl")
    expect(look.page.locator(f"body.body--{theme}")).to_be_visible()
    ground = look.page.locator("body").evaluate("each => getComputedStyle(each).backgroundColor")
    for name in ("Import", "Export"):
        ink = look.page.get_by_role("button", name=name).evaluate("each => getComputedStyle(each).color")
        assert contrast(ink, ground) >= 4.5, name


def contrast(one: str, other: str) -> float:
    """How far apart two colours (``rgb(1, 2, 3)``) are in brightness: WCAG 2.2, contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_signing_out_forgets_the_token(look: Look) -> None:
    look.sign_in(look.town.member)
    look.page.get_by_label("Account").click()
    look.page.get_by_text("Sign out").click()
    expect(look.page).to_have_url(re.compile("/login"))
    look.open("/project/shop/acl")
    expect(look.page).to_have_url(re.compile("/login"))


def test_times_are_shown_in_the_zone_of_who_looks(look: Look) -> None:
    with look.town.client() as client:
        created = next(client.acl_versions("shop")).created
    look.sign_in(look.town.member)
    look.open("/project/shop/history")
    hour = (created.hour + (2 if 4 <= created.month <= 9 else 1)) % 24
    if created.month in (3, 10):
        pytest.skip("the clocks change in this month")
    expect(look.page.get_by_text(f"{hour:02d}:{created:%M:%S}").first).to_be_visible()

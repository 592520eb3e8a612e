"""Bad input in a real browser: races of every kind, versions that are gone, odd files, odd texts. Nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import aclflow
from playwright.sync_api import Page, expect

from orchestrator.client import Client
from orchestrator.errors import Stale
from orchestrator.policy.formats.native import acl_from_json, rule_from_json

from .conftest import SHOP, Look

LONG = "x" * 10_000
ARABIC = "قاعدة لشبكة المكتب"
TURNED = "deny \u202etimrep\u202c all"
CONTROL = "one\x00two\x1b[31m\nthree"
NEW = {
    "id": "theirs", "action": "permit", "protocol": "tcp", "source": "203.0.113.8/32",
    "destination": "198.51.100.9/32", "destination_ports": 443,
}  # fmt: skip


@pytest.fixture
def client(look: Look) -> Iterator[Client]:
    """A member of the project, at whose list the browser looks."""
    with look.town.client(look.town.member) as client:
        client.acls.put("shop", acl_from_json(SHOP))
        look.sign_in(look.town.member, "/project/shop/acl")
        yield client


def edit_description(page: Page, rule: str, text: str) -> None:
    page.get_by_label(f"Edit {rule}", exact=True).click()
    page.get_by_role("dialog").get_by_label("Description").fill(text)
    page.get_by_role("button", name="Keep in draft").click()


def upload(page: Page, name: str, data: bytes) -> None:
    page.get_by_role("button", name="Import").click()
    page.set_input_files("input[type=file]", [{"name": name, "mimeType": "text/plain", "buffer": data}])


@pytest.mark.parametrize("other", ["command line", "REST"])
def test_somebody_writes_elsewhere_while_a_draft_is_reviewed(look: Look, client: Client, other: str) -> None:
    """Both changes are there in the end, whichever way the other one was made."""
    page = look.page
    page.get_by_label("More for dns").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly denied")).to_be_visible()
    if other == "REST":
        client.acls.insert_rule("shop", rule_from_json(NEW))
    else:
        words = "--permit --protocol tcp --source 203.0.113.8 --destination 198.51.100.9 --port 443 --yes --no-wait"
        service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.member}
        told = aclflow("acl", "rule", "add", "shop", "theirs", *words.split(), environment=service)
        assert told.code == 0, told.err
    page.get_by_role("button", name="Commit", exact=True).click()
    page.get_by_role("button", name="Review again").click()
    expect(page.get_by_text("deletion of 'dns'")).to_be_visible()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    rules = [rule.id for rule in client.acls.read_rules("shop")]
    assert ("theirs" in rules, "dns" in rules) == (True, False)


def test_the_browser_is_faster_than_a_file_on_the_command_line(look: Look, client: Client, tmp_path: Path) -> None:
    """A file that was taken before is merged: nothing of the browser's commit is lost."""
    page, file = look.page, tmp_path / "shop.json"
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.member}
    assert aclflow("acl", "show", "shop", "--output", str(file), environment=service).code == 0
    page.get_by_label("More for dns").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    file.write_text(file.read_text().replace("front ends", "the front ends"))
    told = aclflow("acl", "apply", "shop", str(file), "--yes", "--no-wait", environment=service)
    assert (told.code, "merged" in told.err + told.out) == (0, True), told.err
    assert "dns" not in [rule.id for rule in client.acls.read_rules("shop")]
    assert client.acls.read("shop").acl.groups["web"].description == "the front ends"


def test_the_browser_is_faster_than_a_program(look: Look, client: Client) -> None:
    """A program that speaks REST writes on top of what it read, is told to read again, and then loses nothing."""
    page, read = look.page, client.acls.read("shop")
    page.get_by_label("More for dns").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    with pytest.raises(Stale):
        client.acls.put("shop", replace(read.acl, rules=(rule_from_json(NEW), *read.acl.rules)), etag=read.etag)
    assert [rule.id for rule in client.acls.read_rules("shop")] == [
        rule.id for rule in read.acl.rules if rule.id != "dns"
    ]
    newest = client.acls.read("shop")
    client.acls.put("shop", replace(newest.acl, rules=(rule_from_json(NEW), *newest.acl.rules)), etag=newest.etag)
    look.open("/project/shop/acl")
    expect(page.locator("tbody tr").first).to_contain_text("theirs")
    expect(page.get_by_text("dns", exact=True)).to_have_count(0)


def test_the_version_that_a_draft_began_at_is_gone(look: Look, client: Client) -> None:
    """The tenant was deleted and made again under the draft: it is told, and what was typed is kept."""
    page = look.page
    with look.town.client() as admin:
        admin.tenants.create("stand", domain="pop", prefixes=[])
        try:
            admin.acls.put("stand", acl_from_json({"rules": [{"id": "all", "action": "deny"}]}))
            look.sign_in(look.town.admin, "/project/stand/acl")
            edit_description(page, "all", "typed with care")
            page.get_by_role("button", name="Review and commit").click()
            page.wait_for_selector("[data-part=cost][aria-busy=false]")  # else what is not read yet finds no tenant
            admin.tenants.delete("stand")
            admin.tenants.create("stand", domain="pop", prefixes=[])
            page.get_by_role("button", name="Commit", exact=True).click()
            expect(page.get_by_text("Somebody changed the same packets meanwhile")).to_be_visible()
            page.get_by_role("button", name="Leave my draft as it is").click()
            expect(page.get_by_text("change of 'all'")).to_be_visible()
            assert list(admin.acls.read_rules("stand")) == []
        finally:
            admin.tenants.delete("stand")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("nothing.json", b"", "it is empty"),
        ("nothing.txt", b" \n", "it is empty"),
        ("list.iptables", b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe" * 50, ""),
        ("picture.png", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 40, ""),
        (
            "bank.json",
            b'{"taken_from": {"tenant": "bank", "version": 0}, "rules": []}',
            "it was taken from the list of 'bank', and this is 'shop'",
        ),
    ],
)
def test_a_file_that_is_no_list_of_this_project_changes_nothing(
    look: Look, client: Client, name: str, data: bytes, says: str
) -> None:
    page = look.page
    upload(page, name, data)
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_be_visible()
    expect(alert).to_contain_text(says)
    assert "\x00" not in alert.inner_text()
    for button in ("Put into the draft", "Take its safe approximation"):
        expect(page.get_by_role("button", name=button)).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("not committed")).to_have_count(0)


def test_descriptions_that_no_store_keeps_are_refused_at_their_field(look: Look, client: Client) -> None:
    """Too long, with control characters: said in the form, which stays; right-to-left text is kept as it is."""
    page = look.page
    page.get_by_label("Edit dns", exact=True).click()
    dialog = page.get_by_role("dialog")
    for text, says in ((LONG, "10"), (CONTROL.replace("\n", " "), "cannot be kept")):
        dialog.get_by_label("Description").fill(text)
        page.get_by_role("button", name="Keep in draft").click()
        expect(dialog.locator(".q-field--error")).to_contain_text(says)
    dialog.get_by_label("Description").fill(ARABIC)
    page.get_by_role("button", name="Keep in draft").click()
    expect(page.get_by_role("row", name="dns")).to_contain_text(ARABIC)
    page.get_by_role("button", name="Review and commit").click()
    page.get_by_label("What is it for?").fill(ARABIC)
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()
    newest = next(client.acls.read_versions("shop"))
    assert (newest.comment, client.acls.read_rule("shop", "dns").rule.description) == (ARABIC, ARABIC)
    look.open("/project/shop/history")
    expect(page.locator(".said").first).to_have_text(ARABIC)


def test_a_comment_that_no_store_keeps_changes_nothing(look: Look, client: Client) -> None:
    """The field takes no more than the history keeps; control characters are refused, and the draft stays."""
    page = look.page
    page.get_by_label("More for dns").click()
    page.get_by_text("Delete", exact=True).click()
    page.get_by_role("button", name="Review and commit").click()
    comment = page.get_by_label("What is it for?")
    comment.fill("")
    comment.press_sequentially("y" * 1010, timeout=0, delay=0)
    assert len(comment.input_value()) == 1000
    comment.fill("a\x1b[31mb")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("Not committed: What is it for?: the character U+001B cannot be kept")).to_be_visible()
    assert "dns" in [rule.id for rule in client.acls.read_rules("shop")]
    comment.fill("")
    page.get_by_role("button", name="Commit", exact=True).click()
    expect(page.get_by_text("is committed")).to_be_visible()


def test_characters_that_turn_text_round_are_seen_as_escapes(look: Look, client: Client) -> None:
    """They are seen where a rule and its version are shown; the field to edit has what was written."""
    page, seen = look.page, r"deny \u202etimrep\u202c all"
    acl = client.acls.read("shop").acl
    turned = replace(acl.rules[0], description=TURNED)
    client.acls.put("shop", replace(acl, rules=(turned, *acl.rules[1:])), comment=TURNED)
    look.open("/project/shop/acl")
    expect(page.locator("tbody tr", has_text="ssh-contractors").get_by_text(seen)).to_be_visible()
    page.get_by_label("Edit ssh-contractors", exact=True).click()
    expect(page.get_by_role("dialog").get_by_label("Description")).to_have_value(TURNED)
    page.keyboard.press("Escape")
    look.open("/project/shop/history")
    expect(page.get_by_text(seen).first).to_be_visible()
    assert "\u202e" not in page.locator("body").inner_text()

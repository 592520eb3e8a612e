"""Files in a real browser: lists come in from any format and go out to any, and what is lost is told."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import aclflow
from playwright.sync_api import FilePayload, expect

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.results import Effect
from orchestrator.policy.model import Endpoint, TenantId

from .conftest import Look, discard

CISCO = Path(__file__).parents[2] / "orchestrator" / "lab" / "policies" / "shop.cisco"
ROUTER = FilePayload(name="router.cfg", mimeType="text/plain", buffer=CISCO.read_bytes())

pytestmark = pytest.mark.usefixtures("the_list_as_it_was")


def test_a_file_is_imported_into_the_draft_with_what_it_loses(look: Look) -> None:
    page = look.page
    text = (
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -d 198.51.100.0/24 -p tcp --dport 8080 -j ACCEPT\n"
        "-A FORWARD -m quota --quota 7 -j ACCEPT\nCOMMIT\n"
    )
    look.sign_in(look.town.member, "/project/shop/acl")
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
    look.sign_in(look.town.member, "/project/shop/acl")
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


def test_a_configuration_with_several_lists_asks_which(look: Look) -> None:
    """A router's: the dialog asks as `--list` does, and says so in its own words."""
    page = look.page
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Lists to read")).to_be_hidden()
    page.set_input_files("input[type=file]", [ROUTER])
    expect(dialog.get_by_role("alert")).to_contain_text("name those to read ('Lists to read') among SHOP-IN, SHOP-IN-6")
    dialog.get_by_label("Lists to read").fill("SHOP-OUT")
    expect(dialog.get_by_role("alert")).to_contain_text("SHOP-OUT")
    dialog.get_by_label("Lists to read").fill("SHOP-IN")
    expect(dialog.get_by_text("ingress is the access list SHOP-IN")).to_be_visible()
    page.get_by_role("button", name="Put into the draft").click()
    expect(page.get_by_text("the whole list, from router.cfg")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("scanner")
    discard(page)


@pytest.fixture
def two_endpoints(look: Look) -> Iterator[None]:
    """The project has two machines for a while."""
    with look.town.client() as client:
        for number, name in enumerate(("web1", "db1"), 17):
            prefix = Prefix.parse(f"198.51.100.{number}/32")
            client.domains.put_endpoint(
                "pop", Endpoint(name, TenantId("shop"), f"tap{number}", 0x0A00 + number, (prefix,))
            )
        yield
        for name in ("web1", "db1"):
            client.domains.remove_endpoint("pop", name)


def export(look: Look, form: str, *, each: bool) -> dict[str, str]:
    """Choose a format in the dialog, whole or for each endpoint; return the files that come down, by name."""
    page = look.page
    look.open("/project/shop/acl")
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Format").click()
    page.get_by_role("option", name=f"{form}:").click()
    if each:
        dialog.get_by_role("checkbox", name="One file for each endpoint").click()
    with page.expect_download() as loaded:
        dialog.get_by_role("button", name="Download").click()
    path = Path(loaded.value.path())
    if not loaded.value.suggested_filename.endswith(".zip"):
        return {loaded.value.suggested_filename: path.read_text()}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.usefixtures("two_endpoints")
@pytest.mark.parametrize("form", ["aws-sg", "azure-nsg", "openstack-sg"])
def test_each_endpoint_gets_its_security_group(look: Look, tmp_path: Path, form: str) -> None:
    """The same files as on the command line, and beside each what it could not say; the dialog counts that too."""
    look.sign_in(look.town.member)
    files = export(look, form, each=True)
    service = {"ACLFLOW_URL": look.town.url, "ACLFLOW_TOKEN": look.town.member}
    words = ("acl", "export", "shop", "-f", form, "--endpoint", "all", "--approximate", "--output", str(tmp_path))
    told = aclflow(*words, environment=service)
    for name in ("web1", "db1"):
        assert files[f"{name}.{form}.txt"] == (tmp_path / f"{name}.{form}").read_text(), told.err
        assert "443" in files[f"{name}.{form}.txt"] or name == "db1"
    beside = [text for name, text in files.items() if name.endswith(".losses")]
    effects = tuple(f": {effect.value}: " for effect in Effect)
    lost = sum(effect in line for text in beside for line in text.splitlines() for effect in effects)
    shown = look.page.get_by_role("dialog").get_by_text(re.compile(r"^\d+ places? cannot be said exactly"))
    if lost:
        expect(shown).to_contain_text(f"{lost} place")
    else:
        expect(shown).to_have_count(0)


def test_what_a_format_cannot_say_is_a_list_beside_the_file(look: Look) -> None:
    look.sign_in(look.town.member)
    files = export(look, "aws-sg", each=False)
    assert [*files] == ["shop.aws-sg.txt", "shop.aws-sg.txt.losses"]
    losses = files["shop.aws-sg.txt.losses"]
    assert "2 places could not be said exactly; less is permitted, more is denied" in losses
    for rule in ("rule 3, 'web-in'", "rule 4, 'dns'"):
        assert f"{rule}: permit left out (narrower): only the far side can be named" in losses
    dialog = look.page.get_by_role("dialog")
    expect(dialog.get_by_text("2 places cannot be said exactly")).to_be_visible()
    expect(dialog.get_by_text("shop.aws-sg.txt.losses")).to_be_visible()
    for rule in ("Rule 3 ('web-in')", "Rule 4 ('dns')"):
        expect(
            dialog.get_by_text(f"{rule}: permit left out (narrower): only the far side can be named")
        ).to_be_visible()


def test_a_project_whose_last_machine_has_just_gone_learns_what_is_missing(look: Look) -> None:
    page = look.page
    web1 = Endpoint("web1", TenantId("shop"), "tap17", 0x0A0011, (Prefix.parse("198.51.100.17/32"),))
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("checkbox", name="One file for each endpoint").click()
    with look.town.client() as client:
        client.domains.put_endpoint("pop", web1)
        with page.expect_download():
            page.get_by_role("button", name="Download").click()
        client.domains.remove_endpoint("pop", "web1")
    page.get_by_role("button", name="Download").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("has no endpoints")


def test_what_the_service_would_refuse_is_said_by_row_and_field(look: Look) -> None:
    """A list from elsewhere whose third rule names addresses of somebody else: as the page numbers and calls them."""
    page = look.page
    foreign = {"id": "mail", "action": "permit", "destination": ["198.51.100.3/32", "203.0.113.9/32"]}
    rules = [{"id": name, "action": "permit", "destination": "198.51.100.2/32"} for name in ("web", "dns")]
    text = json.dumps({"rules": [*rules, foreign]})
    look.sign_in(look.town.member, "/project/shop/acl")
    page.get_by_role("button", name="Import").click()
    page.set_input_files("input[type=file]", [{"name": "a.json", "mimeType": "text/plain", "buffer": text.encode()}])
    page.get_by_role("button", name="Put into the draft").click()
    expect(page.locator("tbody tr").nth(2)).to_contain_text("mail")
    page.get_by_role("button", name="Review and commit").click()
    refused = page.get_by_role("alert").filter(has_text="The service would refuse this list")
    expect(refused).to_contain_text(
        "Rule 3 ('mail'), Destination: 203.0.113.9/32 is not among the project's own prefixes"
    )
    expect(page.get_by_role("button", name="Commit", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Back to the list").click()
    page.get_by_label("Edit mail", exact=True).click()
    page.get_by_label("Destination", exact=True).fill("198.51.100.3")
    page.get_by_role("button", name="Keep in draft").click()
    page.get_by_role("button", name="Review and commit").click()
    expect(page.get_by_text("Newly permitted")).to_be_visible()
    expect(page.get_by_role("button", name="Commit", exact=True)).to_be_enabled()
    look.open("/project/shop/acl")
    discard(page)

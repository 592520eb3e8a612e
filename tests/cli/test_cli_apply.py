"""Stories of people who change a list from the command line, and of two who do it at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli.tenantlists import DNS, WEB, Run, edited, listed, rules_of
from served import Served

from orchestrator.client import Host
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Role


def test_a_colleagues_rule_is_kept(run: Run, tenant: str, service: Served, tmp_path: Path) -> None:
    """Take the list, edit it for a while, apply it: what a colleague added meanwhile is still there."""
    file = tmp_path / "list.json"
    assert run("acl", "show", tenant, "--output", str(file)).code == 0
    with service.client() as colleague:
        colleague.acls.insert_rule(tenant, rule_from_json(DNS), comment="names")
    edited(file, lambda document: document["rules"].append({**WEB, "id": "alt", "destination_ports": 8443}))
    ended = run("acl", "apply", tenant, str(file), "--yes", "-m", "a second port")
    assert ended.code == 0, ended.err
    assert "merged with what was changed since version 1" in ended.out
    assert "+ alt  ingress permit tcp any > 198.51.100.7/32 port 8443" in ended.out
    assert sorted(rules_of(run, tenant)) == ["alt", "dns", "ssh", "web"]
    history = run("acl", "versions", tenant, "--json").json()
    assert [one["comment"] for one in history[:2]] == ["a second port", "names"]


def test_edits_that_touch_a_colleagues_are_refused(run: Run, tenant: str, service: Served, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    run("acl", "show", tenant, "-o", str(file))
    with service.client() as colleague:
        colleague.acls.put_rule(tenant, rule_from_json({**WEB, "source": "203.0.113.0/24"}))
    edited(file, lambda document: document["rules"][0].update(destination_ports=[443, 80]))
    ended = run("acl", "apply", tenant, str(file), "--yes")
    assert ended.code == 1
    assert "rule 'web' was changed on both sides" in ended.err
    assert "nothing was changed" in ended.err
    assert run("acl", "versions", tenant, "--json").json()[0]["version"] == 2


@pytest.mark.parametrize("form", ["iptables", "cisco", "asa", "azure-nsg", "nftables", "native-yaml", "aerleon"])
def test_a_file_in_any_format_brings_its_base(
    run: Run, tenant: str, service: Served, tmp_path: Path, form: str
) -> None:
    """Export for a router, let a colleague add a rule, apply the exported file: the colleague's rule stays."""
    shown, exported = tmp_path / "list.json", tmp_path / "list.exported"
    assert run("acl", "show", tenant, "-o", str(shown)).code == 0
    assert run("acl", "export", str(shown), "-f", form, "-o", str(exported)).code == 0
    with service.client() as colleague:
        colleague.acls.insert_rule(tenant, rule_from_json(DNS))
    ended = run("acl", "apply", tenant, str(exported), "--yes")
    assert ended.code == 0, ended.err
    assert "merged with what was changed since version 1" in ended.out
    assert "dns" in rules_of(run, tenant)


def test_a_version_that_is_gone_is_no_base_in_any_format(run: Run, tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "list.ios"
    assert run("acl", "show", tenant, "-f", "cisco", "-o", str(file)).code == 0
    file.write_text(file.read_text().replace('"version": 1', '"version": 77'))
    ended = run("acl", "apply", tenant, str(file), "--yes")
    assert (ended.code, "there is no version 77 to compare with" in ended.err) == (1, True)
    file.write_text(file.read_text().replace(f'"{tenant}"', '"another"'))
    ended = run("acl", "apply", tenant, str(file), "--yes")
    assert (ended.code, "it was taken from tenant 'another'" in ended.err) == (2, True)
    assert rules_of(run, tenant) == ["web", "ssh"]


def test_the_base_may_be_said_where_the_file_does_not(run: Run, tenant: str, service: Served) -> None:
    with service.client() as colleague:
        colleague.acls.insert_rule(tenant, rule_from_json(DNS))
    assert run("acl", "apply", tenant, "-", "--yes", "--base-version", "1", stdin=listed(WEB)).code == 0
    assert rules_of(run, tenant) == ["web", "dns"]


def test_a_base_that_is_forgotten_is_no_base(run: Run, tenant: str) -> None:
    """A quota of versions makes the history forget its oldest versions; whoever began there is told, everywhere."""
    assert run("tenant", "quota", "set", tenant, "--versions", "3").code == 0
    for number in range(5):
        edit = ("--description", f"edit {number}", "--yes", "--no-wait")
        assert run("acl", "rule", "set", tenant, "web", *edit).code == 0
    kept = [each["version"] for each in run("acl", "versions", tenant, "--json").json()]
    assert 1 not in kept
    assert len(kept) > 1
    before = run("acl", "show", tenant).out
    ended = run("acl", "apply", tenant, "-", "--yes", "--base-version", "1", stdin=listed(WEB))
    assert (ended.code, "there is no version 1 to compare with" in ended.err) == (1, True), ended
    assert "`aclflow acl show`" in ended.err
    for command in (
        ("acl", "show", f"{tenant}@1"),
        ("acl", "diff", f"{tenant}@1", tenant),
        ("acl", "restore", tenant, "1", "--yes"),
        ("acl", "export", f"{tenant}@1", "-f", "iptables"),
    ):
        told = run(*command)
        assert (told.code, "has no version 1, or not any more" in told.err) == (1, True), (command, told)
    never = run("acl", "apply", tenant, "-", "--yes", "--base-version", "77", stdin=listed(WEB))
    assert (never.code, "there is no version 77 to compare with" in never.err) == (1, True)
    assert run("acl", "show", tenant).out == before


def test_without_a_terminal_nothing_is_changed_unasked(run: Run, tenant: str) -> None:
    ended = run("acl", "apply", tenant, "-", stdin=listed())
    assert ended.code == 2
    assert "--yes" in ended.err
    assert "--dry-run" in ended.err
    assert "- web" in ended.out, "what would change was shown"
    assert rules_of(run, tenant) == ["web", "ssh"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("acl apply {tenant} missing.json", "missing.json: it cannot be read"),
        ("acl apply nobody -", "there is no tenant 'nobody'"),
        ("acl apply {tenant} - --base-version 77", "there is no version 77"),
        ("acl restore {tenant} 99", "has no version 99"),
        ("acl restore nobody 1", "there is no tenant 'nobody'"),
    ],
)
def test_what_is_wrong_is_told_before_that_nobody_can_be_asked(run: Run, tenant: str, words: str, said: str) -> None:
    ended = run(*words.format(tenant=tenant).split(), stdin=listed(WEB))
    assert (ended.code in (1, 3), said in ended.err, "--yes" in ended.err) == (True, True, False), ended


def test_a_dry_run_shows_what_would_change(run: Run, tenant: str) -> None:
    ended = run("acl", "apply", tenant, "-", "--dry-run", stdin=listed())
    assert ended.code == 0
    assert "closes 2 rules (web, ssh) that decided no packet in the last 24 hours" in ended.out
    assert "- web" in ended.out
    wide = run("acl", "apply", tenant, "-", "--dry-run", "--json", stdin=listed({"id": "all", "action": "permit"}))
    assert wide.json()["headline"][0] == {"text": "opens every port of every address to everyone", "danger": "high"}
    assert [(one["change"], one["rule"]) for one in wide.json()["rules"]] == [
        ("removed", "web"),
        ("removed", "ssh"),
        ("added", "all"),
    ]
    assert run("acl", "versions", tenant, "--json").json()[0]["version"] == 1


def test_the_same_list_again_changes_nothing(run: Run, tenant: str, tmp_path: Path) -> None:
    """Nobody is asked, even without --yes on a terminal; the words do not suggest that something changes."""
    same = tmp_path / "same.json"
    assert run("acl", "show", tenant, "-o", str(same)).code == 0
    applied = run("acl", "apply", tenant, str(same), "--yes")
    assert (applied.code, "version 1, as it was" in applied.out) == (0, True), applied
    assert "nothing changes: the list is the same already" in applied.out
    words = edited(same, lambda document: document["rules"][0].update(description="the shop"))
    assert "only words or places of rules change" in run("acl", "apply", tenant, words, "--dry-run").out


def test_a_file_of_another_tenant_is_refused(run: Run, tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    run("acl", "show", tenant, "-o", str(file))
    run("tenant", "create", f"{tenant}-2", "--domain", f"d-{tenant}", "--prefix", "203.0.113.0/24")
    ended = run("acl", "apply", f"{tenant}-2", str(file), "--yes")
    assert (ended.code, f"it was taken from tenant '{tenant}'" in ended.err) == (2, True)
    assert rules_of(run, f"{tenant}-2") == []
    run("tenant", "delete", f"{tenant}-2", "--yes")


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x7fELF", b"\xff\xfe\x00", b"[]", b"{}", b'{"rules": null}'])
def test_a_file_that_is_no_list_changes_nothing(run: Run, tenant: str, content: bytes) -> None:
    for more in ((), ("-f", "native")):
        assert run("acl", "apply", tenant, "-", "--yes", *more, stdin=content).code == 2
    assert rules_of(run, tenant) == ["web", "ssh"]


@pytest.mark.parametrize(
    "taken_from", [{}, {"tenant": "x"}, {"tenant": "x", "version": "1"}, {"tenant": "x", "version": -1}, "x", None]
)
def test_an_origin_that_cannot_be_read_is_refused(run: Run, tenant: str, taken_from: object) -> None:
    text = json.dumps({"rules": [WEB], "taken_from": taken_from})
    ended = run("acl", "apply", tenant, "-", "--yes", stdin=text)
    assert (ended.code, "taken_from" in ended.err) == (2, True)


@pytest.mark.parametrize("message", ["two\nlines", "a bell \a", "x" * 10_000, "\ud800"])
def test_a_comment_is_one_line_of_some_length(run: Run, tenant: str, message: str) -> None:
    ended = run("acl", "apply", tenant, "-", "--yes", "-m", message, stdin=listed(DNS))
    assert ended.code == 2, ended
    assert rules_of(run, tenant) == ["web", "ssh"]


def test_a_comment_may_be_in_any_script(run: Run, tenant: str) -> None:
    text = "שלום, מיגרציה (CHG-1234)"
    assert run("acl", "apply", tenant, "-", "--yes", "-m", text, stdin=listed(DNS)).code == 0
    assert run("acl", "versions", tenant, "--json").json()[0]["comment"] == text


def test_the_old_spelling_answers_with_the_new_one(run: Run, tenant: str) -> None:
    for verb in ("apply", "review"):
        ended = run("acl", verb, "list.json", "--tenant", tenant)
        assert (ended.code, f"aclflow acl {verb} {tenant} list.json" in ended.err) == (2, True)


def test_the_service_holds_a_document_to_what_it_was_taken_from(service: Served, run: Run, tenant: str) -> None:
    """A program that sends an exported file as it is cannot overwrite a newer list, whatever it says in If-Match."""
    document = run("acl", "show", tenant, "--json").json()
    with service.client() as client, service.http() as http:
        client.acls.insert_rule(tenant, rule_from_json(DNS))
        put = http.put(f"/v1/tenants/{tenant}/acl", json=document, headers={"If-Match": "*"})
        assert (put.status_code, put.json()["place"]) == (412, "taken_from")
        other = {**document, "taken_from": {"tenant": "other", "version": 2}}
        put = http.put(f"/v1/tenants/{tenant}/acl", json=other, headers={"If-Match": "*"})
        assert (put.status_code, put.json()["place"]) == (400, "taken_from.tenant")


def test_a_list_says_whether_it_is_in_force(service: Served, run: Run, tenant: str) -> None:
    shown = run("acl", "show", tenant).out
    assert re.search(r"version 1 is in force since [^\n]* UTC \(the domain has no host yet\)", shown)
    with service.client() as client:
        made = client.tenants.read(tenant).in_force
        assert (made.version, made.state, made.hosts, made.late) == (1, "in force", 0, 0)
        client.domains.add_host(f"d-{tenant}", Host("h1", 0xA1, "up0"))
        assert "version 1 is behind: h1, since" in run("acl", "show", tenant).out
        assert "version 1 is behind: h1, since" in run("acl", "versions", tenant).err
        member = service.make_token(Role.MEMBER, tenant)
        with service.client(member) as other:
            behind = other.tenants.read(tenant).in_force
        assert (behind.state, behind.late, behind.behind) == ("behind", 1, None)
        assert "h1" not in behind.text()
        client.domains.remove_host(f"d-{tenant}", "h1")
        assert client.tenants.read(tenant).in_force.state == "in force"


def test_endpoints_of_the_service_get_their_own_files(run: Run, tenant: str, service: Served, tmp_path: Path) -> None:
    web1 = Endpoint("web1", TenantId(tenant), "tap1", 0x0A0000000001, (Prefix.parse("198.51.100.7/32"),))
    assert "has no endpoint" in run("acl", "export", tenant, "-f", "aws-sg", "--endpoint", "web1").err
    with service.client() as client:
        client.domains.put_endpoint(f"d-{tenant}", web1)
        ended = run("acl", "export", tenant, "-f", "aws-sg", "--endpoint", "all", "-o", str(tmp_path / "groups"))
        assert (ended.code, f"1 file in {tmp_path / 'groups'}" in ended.err) == (0, True), ended
        assert '"version": 1' in (tmp_path / "groups" / "web1.aws-sg").read_text()
        client.domains.remove_endpoint(f"d-{tenant}", "web1")


def test_a_draft_is_traced_in_its_tenants_place(run: Run, tenant: str, tmp_path: Path) -> None:
    draft = tmp_path / "draft.json"
    draft.write_text(listed(DNS))
    packet = ("-s", "192.0.2.9", "-d", "198.51.100.7", "--port", "443")
    assert run("acl", "trace", tenant, *packet).code == 0
    ended = run("acl", "trace", str(draft), "--tenant", tenant, *packet)
    assert (ended.code, f"{tenant}, ingress: deny, by the default" in ended.out) == (1, True), ended
    assert run("acl", "trace", str(draft), str(draft), "--tenant", tenant, *packet).code == 2
    draft.write_text(listed({**DNS, "destination": "203.0.113.1"}))
    assert run("acl", "trace", str(draft), "--tenant", tenant, *packet).code == 1

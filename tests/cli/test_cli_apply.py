"""Stories of people who change a list from the command line, and of two who do it at once."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from patience import PATIENCE_S
from served import Served

from orchestrator.client import Client, Host
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Role

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
SSH = {**WEB, "id": "ssh", "source": "192.0.2.0/24", "destination_ports": 22}
DNS = {**WEB, "id": "dns", "protocol": "udp", "destination_ports": 53}

Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant with two rules, in a domain without hosts."""
    name = f"a-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    assert run("acl", "apply", name, "-", "--yes", stdin=listed(WEB, SSH)).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


def listed(*rules: object) -> str:
    return json.dumps({"rules": rules})


def rules_of(run: Run, tenant: str) -> list[str]:
    return [rule["id"] for rule in run("acl", "show", tenant, "--json").json()["rules"]]


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """The file after somebody edited it."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return str(path)


def test_a_colleagues_rule_is_kept(run: Run, tenant: str, service: Served, tmp_path: Path) -> None:
    """Take the list, edit it for a while, apply it: what a colleague added meanwhile is still there."""
    file = tmp_path / "list.json"
    assert run("acl", "show", tenant, "--output", str(file)).code == 0
    with service.client() as colleague:
        colleague.insert_rule(tenant, rule_from_json(DNS), comment="names")
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
        colleague.put_rule(tenant, rule_from_json({**WEB, "source": "203.0.113.0/24"}))
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
        colleague.insert_rule(tenant, rule_from_json(DNS))
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
        colleague.insert_rule(tenant, rule_from_json(DNS))
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
        client.insert_rule(tenant, rule_from_json(DNS))
        put = http.put(f"/v1/tenants/{tenant}/acl", json=document, headers={"If-Match": "*"})
        assert (put.status_code, put.json()["place"]) == (412, "taken_from")
        other = {**document, "taken_from": {"tenant": "other", "version": 2}}
        put = http.put(f"/v1/tenants/{tenant}/acl", json=other, headers={"If-Match": "*"})
        assert (put.status_code, put.json()["place"]) == (400, "taken_from.tenant")


def test_a_list_says_whether_it_is_in_force(service: Served, run: Run, tenant: str) -> None:
    shown = run("acl", "show", tenant).out
    assert re.search(r"version 1 is in force since [^\n]* UTC \(the domain has no host yet\)", shown)
    with service.client() as client:
        made = client.tenant(tenant).in_force
        assert (made.version, made.state, made.hosts, made.late) == (1, "in force", 0, 0)
        client.add_host(f"d-{tenant}", Host("h1", 0xA1, "up0"))
        assert "version 1 is behind: h1, since" in run("acl", "show", tenant).out
        assert "version 1 is behind: h1, since" in run("acl", "versions", tenant).err
        member = service.make_token(Role.MEMBER, tenant)
        with service.client(member) as other:
            behind = other.tenant(tenant).in_force
        assert (behind.state, behind.late, behind.behind) == ("behind", 1, None)
        assert "h1" not in behind.text()
        client.remove_host(f"d-{tenant}", "h1")
        assert client.tenant(tenant).in_force.state == "in force"


# ------------------------------------------------------------------------------------------------- on a terminal


class Terminal:
    """`aclflow` in a terminal of its own, to be typed at."""

    def __init__(self, service: Served, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        own = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token, "TERM": "xterm"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | own,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            try:
                more = os.read(self._ours, 65536)
            except OSError:
                more = b""
            assert more, self.seen
            self.seen += more.decode()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        code = self._process.wait(timeout=PATIENCE_S)
        os.close(self._ours)
        return code


def test_a_person_is_asked_and_may_say_no(service: Served, run: Run, tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(listed({"id": "all", "action": "permit"}))
    terminal = Terminal(service, "acl", "apply", tenant, str(file))
    terminal.read_until("[y/N]")
    assert "opens every port of every address to everyone" in terminal.seen
    terminal.type("n\n")
    terminal.read_until("nothing was changed")
    assert terminal.end() == 1
    assert rules_of(run, tenant) == ["web", "ssh"]


def test_who_leaves_at_a_question_is_told_that_nothing_was_changed(service: Served, run: Run, tenant: str) -> None:
    """The end of input (Ctrl-D) and Ctrl-C end alike there: with the code of an interrupted command."""
    terminal = Terminal(service, "acl", "rule", "delete", tenant, "web")
    terminal.read_until("[y/N]")
    terminal.type("\x04")
    terminal.read_until("nothing was changed")
    assert terminal.end() == 130
    assert "Aborted" not in terminal.seen
    assert rules_of(run, tenant) == ["web", "ssh"]


@pytest.mark.parametrize("form", ["native", "cisco"])
def test_a_plan_that_is_confirmed_after_the_list_moved_is_refused(
    service: Served, run: Run, tenant: str, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "list"
    text = write(acl_from_json({"rules": [WEB]}), form, TakenFrom(tenant, 1)).text
    file.write_text(text)
    terminal = Terminal(service, "acl", "apply", tenant, str(file))
    terminal.read_until("[y/N]")
    with service.client() as colleague:
        colleague.insert_rule(tenant, rule_from_json(DNS))
    terminal.type("y\n")
    terminal.read_until("was changed while you looked")
    assert terminal.end() == 1
    assert rules_of(run, tenant) == ["web", "ssh", "dns"]


# ------------------------------------------------------------------------------------------- what is expected of it


def test_a_commit_that_breaks_an_expectation_needs_a_word_more(run: Run, tenant: str, tmp_path: Path) -> None:
    """Write down what must hold, try a list against it, be refused with the packet, and write it all the same."""
    expected, wide = tmp_path / "shop.expect", tmp_path / "wide.json"
    expected.write_text("nobody reaches 198.51.100.7:22 from outside except 192.0.2.0/24\n")
    wide.write_text(listed(WEB, {**SSH, "source": "any"}))
    assert run("acl", "test", tenant, "--expect", str(expected)).code == 0
    kept = run("acl", "expectations", "set", tenant, str(expected))
    assert (kept.code, "1 expectation, held from now on" in kept.out) == (0, True), kept
    assert "nobody reaches" in run("acl", "expectations", "show", tenant).out
    tried = run("acl", "test", str(wide), "--tenant", tenant)
    assert (tried.code, "BROKEN" in tried.out, "by rule 'ssh'" in tried.out) == (1, True, True), tried
    shown = run("acl", "apply", tenant, str(wide), "--dry-run").out
    assert "breaks the expectation `nobody reaches 198.51.100.7:22 from outside" in shown
    refused = run("acl", "apply", tenant, str(wide), "--yes")
    assert (refused.code, "it breaks the expectation" in refused.err) == (1, True), refused
    assert "198.51.100.7:22 syn would get permit by rule 'ssh'" in refused.err
    assert run("acl", "versions", tenant, "--json").json()[0]["version"] == 1
    assert "or write it with `--despite-expectations`" in refused.err
    again = run("acl", "rule", "set", tenant, "ssh", "-s", "any", "--yes")
    assert (again.code, "`--despite-expectations`" in again.err) == (1, True), again
    for words in (
        ("set", tenant, "ssh", "-s", "any"),
        ("add", tenant, "wide", "--permit", "-p", "tcp", "-s", "any", "-d", "any", "--port", "22"),
        ("move", tenant, "wide", "--before", "web"),
        ("delete", tenant, "web"),
    ):
        assert run("acl", "rule", *words, "--yes", "--no-wait", "--despite-expectations").code == 0, words
    assert run("acl", "apply", tenant, str(wide), "--yes", "--despite-expectations").code == 0
    assert run("acl", "test", tenant).code == 1
    unasked = run("acl", "expectations", "delete", tenant)
    assert (unasked.code, "- nobody reaches" in unasked.out, "--yes" in unasked.err) == (2, True, True), unasked
    assert run("acl", "expectations", "delete", tenant, "--yes").code == 0
    assert "nothing is expected" in run("acl", "expectations", "show", tenant).err


def test_an_expectation_that_is_broken_already_refuses_nothing(run: Run, tenant: str, tmp_path: Path) -> None:
    """It is told when it is kept; a change that leaves it as it is does not break it."""
    file = tmp_path / "kept"
    file.write_text("everybody reaches 198.51.100.7:443\nnobody reaches 198.51.100.7:22 from 192.0.2.9\n")
    kept = run("acl", "expectations", "set", tenant, str(file))
    assert kept.out == f"{tenant}: 2 expectations, held from now on\n"
    told = "1 expectation is broken by version 1 already: no change is refused for it until a version keeps it"
    assert kept.err == f"{told} (aclflow acl test {tenant})\n"
    more = tmp_path / "more.json"
    more.write_text(listed(WEB, SSH, DNS))
    applied = run("acl", "apply", tenant, str(more), "--yes")
    assert (applied.code, "breaks the expectation" in applied.out) == (0, False), applied


def test_expectations_of_a_colleague_are_not_dropped_without_a_word(
    run: Run, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, mine = "nobody reaches 198.51.100.7:23 from outside", "everybody reaches 198.51.100.7:443"
    (tmp_path / "theirs").write_text(f"{theirs}\n")
    (tmp_path / "mine").write_text(f"{mine}\n")
    (tmp_path / "both").write_text(f"# ours\n{theirs}\n{mine}\n")
    assert run("acl", "expectations", "set", tenant, str(tmp_path / "theirs")).code == 0
    refused = run("acl", "expectations", "set", tenant, str(tmp_path / "mine"))
    assert (refused.code, f"- {theirs}" in refused.out, "--yes carries it out" in refused.err) == (2, True, True)
    assert theirs in run("acl", "expectations", "show", tenant).out
    real = Client.keep_expectations

    def late(self: Client, *arguments: Any, **named: Any) -> Any:
        real(self, tenant, theirs)
        return real(self, *arguments, **named)

    monkeypatch.setattr(Client, "keep_expectations", late)
    raced = run("acl", "expectations", "set", tenant, str(tmp_path / "mine"), "--yes")
    assert (raced.code, "somebody changed the expectations meanwhile" in raced.err) == (1, True), raced
    monkeypatch.undo()
    assert run("acl", "expectations", "set", tenant, str(tmp_path / "both")).code == 0
    assert run("acl", "expectations", "set", tenant, str(tmp_path / "mine"), "--yes").code == 0
    assert run("acl", "expectations", "show", tenant).out.strip() == mine


def test_endpoints_of_the_service_get_their_own_files(run: Run, tenant: str, service: Served, tmp_path: Path) -> None:
    web1 = Endpoint("web1", TenantId(tenant), "tap1", 0x0A0000000001, (Prefix.parse("198.51.100.7/32"),))
    assert "has no endpoint" in run("acl", "export", tenant, "-f", "aws-sg", "--endpoint", "web1").err
    with service.client() as client:
        client.put_endpoint(f"d-{tenant}", web1)
        ended = run("acl", "export", tenant, "-f", "aws-sg", "--endpoint", "all", "-o", str(tmp_path / "groups"))
        assert (ended.code, f"1 file in {tmp_path / 'groups'}" in ended.err) == (0, True), ended
        assert '"version": 1' in (tmp_path / "groups" / "web1.aws-sg").read_text()
        client.remove_endpoint(f"d-{tenant}", "web1")


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


# ------------------------------------------------------------------------------------------------- confirm or revert


def test_a_change_is_kept_once_it_is_confirmed(run: Run, tenant: str) -> None:
    ended = run("acl", "apply", tenant, "-", "--yes", "--confirm", "5m", stdin=listed(WEB))
    assert ended.code == 0, ended.err
    assert f"goes back in 5m by itself, unless: aclflow acl confirm {tenant}" in ended.err
    refused = run("acl", "apply", tenant, "-", "--yes", stdin=listed(SSH))
    assert refused.code == 1
    assert "to be confirmed: confirm it or take it back, then write" in refused.err
    assert "version 2 is confirmed" in run("acl", "confirm", tenant).out
    assert rules_of(run, tenant) == ["web"]


def test_a_change_is_taken_back(run: Run, tenant: str) -> None:
    assert run("acl", "apply", tenant, "-", "--yes", "--confirm", "1h", stdin=listed(WEB)).code == 0
    assert run("acl", "revert", tenant).code == 0
    assert rules_of(run, tenant) == ["web", "ssh"]
    nothing = run("acl", "confirm", tenant)
    assert nothing.code == 1
    assert "perhaps it went back" in nothing.err


@pytest.mark.parametrize("time", ["5", "9s", "25h", "soon", "1.5m", "-5m"])
def test_a_time_that_is_none_is_refused(run: Run, tenant: str, time: str) -> None:
    ended = run("acl", "apply", tenant, "-", "--yes", "--confirm", time, stdin=listed(WEB))
    assert ended.code == 2
    assert "--confirm" in ended.err
    assert rules_of(run, tenant) == ["web", "ssh"]


def test_a_draft_is_shared_looked_at_and_applied(run: Run, tenant: str, tmp_path: Path) -> None:
    """One shares a file; another sees what it would change and break, takes it as a file and applies that."""
    mine, taken = tmp_path / "mine.json", tmp_path / "taken.json"
    assert run("acl", "show", tenant, "-o", str(mine)).code == 0
    edited(mine, lambda document: document["rules"].append(DNS))
    shared = run("acl", "draft", "share", tenant, str(mine), "-m", "names", "--days", "2")
    assert (shared.code, f"/project/{tenant}/draft?id=" in shared.err) == (0, True), shared
    name = shared.out.strip()
    assert [one["message"] for one in run("acl", "draft", "list", tenant, "--json").json()] == ["names"]
    shown = run("acl", "draft", "show", tenant, name)
    assert "+ dns" in shown.out
    assert run("acl", "draft", "show", tenant, name, "-o", str(taken)).code == 0
    assert run("acl", "apply", tenant, str(taken), "--yes").code == 0
    assert rules_of(run, tenant) == ["web", "ssh", "dns"]
    assert run("acl", "draft", "delete", tenant, name).code == 0
    assert run("acl", "draft", "show", tenant, name).code == 1
    assert run("acl", "draft", "share", tenant, str(mine), "--days", "31").code == 2


def test_authors_are_called_by_the_name_of_their_token(run: Run, tenant: str, tmp_path: Path) -> None:
    """Of drafts, waivers and expectations as of versions; the name stays when the token is revoked."""
    made = run("token", "create", "--role", "member", "--tenant", tenant, "--description", "Ann", "--json").json()
    ann, number = made["token"], made["id"]
    file, expected = tmp_path / "shop.json", tmp_path / "shop.expect"
    file.write_text(listed(WEB, {**WEB, "id": "again"}))
    expected.write_text("everybody reaches 198.51.100.7:443\n")
    assert run("acl", "apply", tenant, str(file), "--yes", token=ann).code == 0
    assert run("acl", "expectations", "set", tenant, str(expected), token=ann).code == 0
    name = run("acl", "draft", "share", tenant, str(file), "-m", "names", token=ann).out.strip()
    told = run("acl", "waiver", "add", tenant, "duplicate", "again", "-m", "soon", "--ends", "in 2w", token=ann)
    assert told.code == 0, told
    assert run("token", "revoke", str(number)).code == 0
    by = f"Ann (member {number})"
    assert by in run("acl", "versions", tenant).out
    assert f"kept by {by} since" in run("acl", "expectations", "show", tenant).err
    assert by in run("acl", "draft", "list", tenant).out
    assert f"names, by {by}" in run("acl", "draft", "show", tenant, name).out
    assert by in run("acl", "waiver", "list", tenant).out

"""Stories of lists that are held to expectations, confirmed in time, or shared as drafts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.tenantlists import DNS, SSH, WEB, Run, edited, listed, rules_of
from interleaving import happen_before


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
    happen_before(monkeypatch, "expectations.keep", lambda expectations: expectations.keep(tenant, theirs))
    raced = run("acl", "expectations", "set", tenant, str(tmp_path / "mine"), "--yes")
    assert (raced.code, "somebody changed the expectations meanwhile" in raced.err) == (1, True), raced
    monkeypatch.undo()
    assert run("acl", "expectations", "set", tenant, str(tmp_path / "both")).code == 0
    assert run("acl", "expectations", "set", tenant, str(tmp_path / "mine"), "--yes").code == 0
    assert run("acl", "expectations", "show", tenant).out.strip() == mine


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

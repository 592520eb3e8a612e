"""Stories of people who try the verbs that they know from elsewhere, on one rule at a time."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended, aclflow
from interleaving import happen_before
from served import Served

from orchestrator.cli.options import end_of
from orchestrator.errors import BadInput
from orchestrator.policy.formats.native import rule_from_json

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
BLOCK = {"id": "block", "action": "deny", "source": "192.0.2.0/24"}

Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant with a permit and a deny, in a domain without hosts."""
    name = f"v-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    listed = json.dumps({"rules": [WEB, BLOCK]})
    assert run("acl", "apply", name, "-", "--yes", stdin=listed).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


def rules(run: Run, tenant: str) -> dict[str, Any]:
    return {rule["id"]: rule for rule in run("acl", "rule", "list", tenant, "--json").json()}


def added(run: Run, tenant: str, *more: str) -> Ended:
    words = ("--permit", "-p", "tcp", "-s", "192.0.2.9", "-d", "198.51.100.8", "--port", "22", "--yes")
    return run("acl", "rule", "add", tenant, "ssh", *words, *more)


def test_a_domain_is_set_to_track_connections(run: Run, tenant: str) -> None:
    domain = f"d-{tenant}"
    ended = run("domain", "set", domain, "--established", "tracked")
    assert (ended.code, "return traffic tracked" in ended.out) == (0, True), ended.err
    assert "return traffic tracked" in run("domain", "show", domain).out
    assert "return traffic: tracked" in run("acl", "show", tenant).out
    words = ("--permit", "-p", "tcp", "-s", "any", "-d", "198.51.100.8", "--established", "--yes")
    flags = run("acl", "rule", "add", tenant, "back", *words)
    assert flags.code != 0
    assert "TCP flags" in flags.err
    assert list(rules(run, tenant)) == ["web", "block"]
    assert "return traffic established" in run("domain", "set", domain, "--established", "ack").out
    wrong = run("domain", "set", domain, "--established", "one-way")
    assert (wrong.code, "'one-way' is none of ack," in wrong.err) == (2, True)


def test_a_domain_is_set_to_a_rate_of_messages_about_path_mtu(run: Run, tenant: str) -> None:
    domain = f"d-{tenant}"
    said = run("domain", "set", domain, "--return-traffic", "path-mtu", "--path-mtu-rate", "7")
    assert "return traffic path-mtu (at most 7 messages a second and tenant)" in said.out, said.err
    assert "at most 8 messages" in run("domain", "set", domain, "--path-mtu-rate", "8").out
    assert "at most 8 messages" in run("domain", "show", domain).out
    assert "messages" not in run("domain", "set", domain, "--return-traffic", "established").out
    beyond = run("domain", "set", domain, "--path-mtu-rate", "10001")
    assert (beyond.code, "--path-mtu-rate" in beyond.err) == (2, True)
    empty = run("domain", "set", domain)
    assert (empty.code, "say --return-traffic, --path-mtu-rate or both" in empty.err) == (2, True)


# ------------------------------------------------------------------------------------------------------- tenants' rules


def test_a_rule_is_added_where_it_has_an_effect(run: Run, tenant: str) -> None:
    ended = added(run, tenant, "-m", "for the backup")
    assert ended.code == 0, ended.err
    assert "it goes before rule 'block'" in ended.err
    assert "+ ssh  ingress permit tcp 192.0.2.9/32 > 198.51.100.8/32 port 22" in ended.out
    assert "in force on every host" in ended.out
    assert list(rules(run, tenant)) == ["web", "ssh", "block"]
    assert run("acl", "versions", tenant, "--json").json()[0]["comment"] == "for the backup"
    again = added(run, tenant)
    assert (again.code, "there is a rule 'ssh' already" in again.err) == (1, True)


def test_a_neighbour_that_is_kept_out_stays_out(run: Run, tenant: str) -> None:
    """What is opened to everyone goes behind denies of some neighbours, which is told."""
    scanner = ("--deny", "-s", "192.0.2.66", "-d", "any", "--position", "1", "--yes")
    assert run("acl", "rule", "add", tenant, "scanner", *scanner).code == 0
    words = ("--permit", "-p", "tcp", "-s", "any", "-d", "198.51.100.8", "--port", "25", "--yes")
    ended = run("acl", "rule", "add", tenant, "smtp", *words)
    assert "still denied before it, by scanner, block" in ended.err
    assert list(rules(run, tenant)) == ["scanner", "web", "block", "smtp"]
    assert run("acl", "trace", f"{tenant}@", "-s", "192.0.2.66", "-d", "198.51.100.8", "--port", "25").code == 1


def test_a_rule_goes_where_it_is_told_to(run: Run, tenant: str) -> None:
    for number, (place, order) in enumerate(
        {
            ("--position", "1"): ["new", "web", "block"],
            ("--after", "web"): ["web", "new", "block"],
            ("--before", "block"): ["web", "new", "block"],
            ("--last",): ["web", "block", "new"],
        }.items()
    ):
        assert run("acl", "rule", "add", tenant, "new", "--deny", "-s", "any", "-d", "any", *place, "-y").code == 0
        assert list(rules(run, tenant)) == order, place
        assert run("acl", "rule", "remove" if number % 2 else "delete", tenant, "new", "-y").code == 0
    two = run("acl", "rule", "move", tenant, "web", "--last", "--position", "1", "-y")
    assert (two.code, "one place only" in two.err) == (2, True)
    nowhere = run("acl", "rule", "move", tenant, "web", "--before", "ghost", "-y")
    assert (nowhere.code, "no rule 'ghost'" in nowhere.err) == (1, True)
    assert run("acl", "rule", "move", tenant, "web", "--after", "block", "-y").code == 0
    assert list(rules(run, tenant)) == ["block", "web"]


def test_what_opens_most_must_be_said(run: Run, tenant: str) -> None:
    for missing, words in (
        ("--source", ("--permit", "-d", "any")),
        ("--destination", ("--permit", "-s", "any")),
        ("--deny", ("-s", "any", "-d", "any")),
        ("--source", ("--permit", "-s", "", "-d", "any")),
    ):
        ended = run("acl", "rule", "add", tenant, "new", *words, "--yes")
        assert (ended.code, missing in ended.err) == (2, True), ended
    wide = run("acl", "rule", "add", tenant, "new", "--permit", "-s", "any", "-d", "any", "--dry-run")
    assert wide.code == 0
    assert "opens every port of every address to nearly everyone" in wide.out
    unasked = run("acl", "rule", "delete", tenant, "web")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    for first, words in {
        "--permit or --deny": ("add", tenant, "new"),
        "there is a rule 'web'": ("add", tenant, "web", "--deny", "-s", "any", "-d", "any"),
        "no rule 'ghost'": ("delete", tenant, "ghost"),
        "what is to change": ("set", tenant, "web"),
    }.items():
        wrong = run("acl", "rule", *words)
        assert (first in wrong.err, "--yes" in wrong.err) == (True, False), wrong
    wrong = run("operator-rule", "delete", f"d-{tenant}", "ghost")
    assert ("ghost" in wrong.err, "--yes" in wrong.err) == (True, False), wrong
    assert list(rules(run, tenant)) == ["web", "block"]


def test_only_what_is_said_of_a_rule_changes(run: Run, tenant: str) -> None:
    words = ("--port", "443,8443", "--log", "--stateless", "--owner", "shop", "--ends", "2101-01-01T00:00:00Z")
    ended = run("acl", "rule", "set", tenant, "web", *words, "--yes", "--json")
    assert (ended.code, ended.json()["changed"]) == (0, True)
    ticked, ends = {"log": True, "stateless": True}, "2101-01-01T00:00:00+00:00"
    expected = {"destination_ports": [443, 8443], **ticked, "owner": "shop", "expires": ends}
    changed = {**WEB, "destination": "198.51.100.7/32", "direction": "ingress", **expected}
    assert rules(run, tenant)["web"] == changed
    words = ("--no-log", "--stateful", "--ends", "never", "--port", "443", "-y")
    assert run("acl", "rule", "set", tenant, "web", *words).code == 0
    back = rules(run, tenant)["web"]
    assert back["destination_ports"] == 443
    assert not back.keys() & {"expires", "log", "stateless"}
    nothing = run("acl", "rule", "set", tenant, "web", "--yes")
    assert (nothing.code, "say what is to change" in nothing.err) == (2, True)
    assert run("acl", "rule", "set", tenant, "ghost", "--log", "--yes").code == 1
    bad = run("acl", "rule", "set", tenant, "web", "--port", "65536", "--yes")
    assert (bad.code, "--port" in bad.err) == (2, True)


def test_a_lost_race_about_one_rule_is_told(run: Run, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = rule_from_json({**WEB, "source": "203.0.113.0/24"})
    happen_before(monkeypatch, "acls.put_rule", lambda acls: acls.put_rule(tenant, mine))
    ended = run("acl", "rule", "set", tenant, "web", "--port", "80", "--yes")
    assert (ended.code, "nothing was written" in ended.err) == (1, True)
    assert rules(run, tenant)["web"]["destination_ports"] == 443
    happen_before(monkeypatch, "acls.delete_rule", lambda acls: acls.delete_rule(tenant, "web"))
    gone = run("acl", "rule", "delete", tenant, "web", "--yes")
    assert (gone.code, "nothing was written" in gone.err) == (1, True)


def test_a_race_about_two_rules_is_none(run: Run, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dns = rule_from_json({"id": "dns", "action": "permit", "protocol": "udp", "destination_ports": 53})
    happen_before(monkeypatch, "acls.put_rule", lambda acls: acls.insert_rule(tenant, dns, position=0))
    assert run("acl", "rule", "set", tenant, "web", "--port", "80", "--yes").code == 0
    found = rules(run, tenant)
    assert (list(found), found["web"]["destination_ports"]) == (["dns", "web", "block"], 80)
    happen_before(monkeypatch, "acls.insert_rule", lambda acls: acls.move_rule(tenant, "block", position=0))
    assert added(run, tenant).code == 0
    assert list(rules(run, tenant)) == ["ssh", "block", "dns", "web"], "it follows the rule that it was shown before"


@pytest.mark.parametrize(
    "text", ["two\nlines", "a bell \a", "\ud800", "x" * 10_000], ids=["lines", "bell", "surrogate", "long"]
)
def test_words_that_cannot_be_kept_are_refused(run: Run, tenant: str, text: str) -> None:
    assert run("acl", "rule", "add", tenant, text, "--deny", "-s", "any", "-d", "any", "--yes").code in {1, 2}
    ended = run("acl", "rule", "set", tenant, "web", "--description", text, "--yes")
    assert (ended.code in {1, 2}, "--description" in ended.err) == (True, True), ended
    assert list(rules(run, tenant)) == ["web", "block"]


def test_words_may_be_in_any_script(run: Run, tenant: str) -> None:
    text = "שרת אינטרנט, مرحبا"
    assert run("acl", "rule", "set", tenant, "web", "--description", text, "--yes").code == 0
    assert rules(run, tenant)["web"]["description"] == text


# ---------------------------------------------------------------------------------------------------- operator's rules


def test_the_operators_rules_have_the_same_verbs(run: Run, tenant: str) -> None:
    domain = f"d-{tenant}"
    words = ("--deny", "-p", "tcp", "-s", "any", "-d", "any")
    assert run("operator-rule", "add", domain, "no-smtp", *words, "--port", "25", "--yes").code == 0
    shown = run("operator-rule", "add", domain, "no-smb", *words, "--port", "445", "--position", "1", "--yes")
    assert (shown.code, "+ no-smb  ingress deny tcp any > any port 445" in shown.out) == (0, True)
    assert "  denies packets for every tenant, whatever their lists permit\nrules:" in shown.out
    assert "newly denied:\n  ingress: tcp any" in shown.out
    assert ", in force on every host" in shown.out
    assert "no-smb\tingress" in run("operator-rule", "show", domain, "no-smb").out
    assert run("operator-rule", "set", domain, "no-smb", "--port", "445,139", "--yes").code == 0
    assert run("operator-rule", "move", domain, "no-smb", "--yes").code == 0
    listed = run("operator-rule", "list", domain, "--json").json()
    assert [(rule["id"], rule["destination_ports"]) for rule in listed] == [("no-smtp", 25), ("no-smb", [139, 445])]
    assert "no-smb\tingress\tdeny" in run("operator-rule", "list", domain).out
    assert run("operator-rule", "add", domain, "no-smb", *words, "--yes").code == 1
    assert run("operator-rule", "set", domain, "ghost", "--log", "--yes").code == 1
    dry = run("operator-rule", "delete", domain, "no-smb", "--dry-run")
    assert (dry.code, "- no-smb" in dry.out) == (0, True)
    assert run("operator-rule", "delete", domain, "no-smb", "--yes").code == 0
    assert [rule["id"] for rule in run("operator-rule", "list", domain, "--json").json()] == ["no-smtp"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("-s", "any", "-d", "any", "--ends", "in 2h"), "--ends: an operator's rule holds until it is deleted"),
        (("-s", "any", "-d", "web1"), "--destination: 'web1' belongs to a tenant"),
        (("-s", "@office", "-d", "any"), "--source: '@office' belongs to a tenant"),
    ],
)
def test_a_dry_run_refuses_what_only_a_tenants_rule_can_say(
    run: Run, tenant: str, said: tuple[str, ...], told: str
) -> None:
    ended = run("operator-rule", "add", f"d-{tenant}", "wide", "--permit", *said, "--dry-run")
    assert (ended.code, told in ended.err, ended.out) == (2, True, ""), ended


def test_an_operator_is_told_first_what_opens_too_much(run: Run, tenant: str) -> None:
    dry = run("operator-rule", "add", f"d-{tenant}", "all", "--permit", "-s", "any", "-d", "any", "--dry-run")
    assert dry.out.splitlines()[1] == "  opens every port of every address to everyone"


def test_two_operators_at_once_lose_nothing(
    run: Run, tenant: str, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = f"d-{tenant}"
    other = rule_from_json({"id": "theirs", "action": "deny", "protocol": "udp"})
    happen_before(
        monkeypatch, "domains.set_operator_rules", lambda domains: domains.set_operator_rules(domain, [other])
    )
    assert run("operator-rule", "add", domain, "mine", "--deny", "-s", "any", "-d", "any", "--yes").code == 0
    with service.client() as client:
        assert [rule.id for rule in client.domains.read_operator_rules(domain)] == ["theirs", "mine"]
        changed = rule_from_json({"id": "mine", "action": "permit"})
        happen_before(
            monkeypatch,
            "domains.set_operator_rules",
            lambda domains: domains.set_operator_rules(domain, [other, changed]),
        )
        ended = run("operator-rule", "set", domain, "mine", "--port", "25", "-p", "tcp", "--yes")
        assert (ended.code, "nothing was written" in ended.err) == (1, True)
        assert client.domains.read_operator_rules(domain)[1] == changed


def test_a_rule_that_can_match_nothing_is_named_by_its_id(run: Run, tenant: str) -> None:
    mixed = ("-s", "2001:db8::1", "-d", "198.51.100.10", "--yes")
    added = run("acl", "rule", "add", tenant, "odd", "--permit", *mixed)
    assert (added.code, "rule 'odd', destination: can never match" in added.err) == (1, True)
    changed = run("acl", "rule", "set", tenant, "web", *mixed)
    assert (changed.code, "rule 'web', destination: can never match" in changed.err) == (1, True)
    everywhere = run("operator-rule", "add", f"d-{tenant}", "wide", "--permit", *mixed)
    assert (everywhere.code, "rule 'wide', destination: can never match" in everywhere.err) == (1, True)


# ------------------------------------------------------------------------------------------------------- names of lists


def test_a_list_is_named_in_one_way(run: Run, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same verbs take files, a tenant, and a tenant at a version."""
    assert run("acl", "rule", "delete", tenant, "block", "--yes").code == 0
    packet = ("-s", "192.0.2.1", "-d", "198.51.100.7", "--port", "443")
    assert "permit, by rule 'web'" in run("acl", "trace", tenant, *packet).out
    assert f"{tenant}@1: permit, by rule 'web'" in run("acl", "trace", f"{tenant}@1", *packet).out
    differs = run("acl", "diff", f"{tenant}@1", tenant)
    lets_replies = "return traffic after" in differs.out
    assert (differs.code, lets_replies) == (1, True), "its domain lets replies in, unless denied"
    alone = run("acl", "diff", f"{tenant}@1", tenant, "--return-traffic", "explicit")
    assert alone.code == 0, "by itself the deny stood before the default, which denies"
    run("acl", "show", tenant, "--output", str(tmp_path / "list.json"))
    monkeypatch.chdir(tmp_path)
    assert run("acl", "diff", tenant, "list.json").code == 0
    assert run("acl", "cost", f"{tenant}@1", "list.json").code == 0
    assert run("acl", "blame", f"{tenant}@1", tenant, *packet).code == 1
    assert "before: version 0: deny" in run("acl", "blame", tenant, *packet).out
    assert run("acl", "export", f"{tenant}@1", "-f", "iptables").out.count("--dport 443") == 1
    assert run("acl", "check", tenant).code in {0, 1}
    gone = run("acl", "diff", f"{tenant}@77", tenant)
    assert gone.code == 1


def test_a_file_with_a_tenants_name_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").write_text(json.dumps({"rules": [WEB]}))
    monkeypatch.chdir(tmp_path)
    ended = run("acl", "cost", "shop")
    assert (ended.code, "the file is ./shop" in ended.err) == (1, True)
    assert run("acl", "cost", "./shop").code == 0
    alone = aclflow("acl", "cost", "shop")
    assert (alone.code, "the file is ./shop" in alone.err) == (3, True)


def test_a_version_is_shown_by_its_name(run: Run, tenant: str) -> None:
    assert run("acl", "show", f"{tenant}@0").out.splitlines()[-1] == "version 0"
    assert run("acl", "show", f"{tenant}@1") == run("acl", "show", tenant, "--version", "1")
    assert run("acl", "show", f"{tenant}@") == run("acl", "show", tenant)
    assert run("acl", "show", f"{tenant}@0", "-o", "json").json()["taken_from"]["tenant"] == tenant
    twice = run("acl", "show", f"{tenant}@1", "--version", "1")
    assert (twice.code, "--version" in twice.err) == (2, True)


def test_a_version_comes_back_as_a_change_that_is_shown(run: Run, tenant: str) -> None:
    assert run("acl", "rule", "delete", tenant, "web", "--yes").code == 0
    unasked = run("acl", "restore", tenant, "1")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    dry = run("acl", "restore", tenant, "1", "--dry-run")
    assert "+ web" in dry.out
    assert list(rules(run, tenant)) == ["block"]
    ended = run("acl", "restore", tenant, "1", "--yes", "-m", "back")
    assert (ended.code, "in force on every host (the domain has none yet)" in ended.out) == (0, True)
    assert list(rules(run, tenant)) == ["web", "block"]
    assert run("acl", "versions", tenant, "--json").json()[0]["comment"] == "back"
    assert run("acl", "restore", tenant, "99", "--yes").code == 1


# -------------------------------------------------------------------------------------------------------- old spellings


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (("tenant", "trace", "shop", "-s", "192.0.2.1"), "aclflow acl trace shop -s 192.0.2.1"),
        (("tenant", "compare", "shop", "1"), "aclflow acl diff TENANT@VERSION TENANT"),
        (("tenant", "restore", "shop", "1"), "aclflow acl restore shop 1"),
        (("tenant", "blame", "shop"), "aclflow acl blame shop"),
        (("tenant", "bisect", "shop"), "aclflow acl bisect shop"),
        (("tenant", "add-prefix", "shop", "::/0"), "aclflow tenant prefix add shop ::/0"),
        (("tenant", "remove-prefix", "shop", "::/0"), "aclflow tenant prefix delete shop ::/0"),
        (("tenant", "set-quota", "shop", "--rules", "1"), "aclflow tenant quota set shop --rules 1"),
        (("tenant", "quota", "shop"), "aclflow tenant quota show shop"),
        (("tenant", "quota", "blue", "--json"), "aclflow tenant quota show blue --json"),
        (("domain", "add-host", "pop1", "h1", "--uplink", "up0"), "aclflow domain host add pop1 h1 --uplink up0"),
        (("domain", "list-endpoints", "pop1"), "aclflow domain endpoint list pop1"),
        (("domain", "invite-group", "pop1", "fleet"), "aclflow domain group invite pop1 fleet"),
        (("domain", "groups", "pop1"), "aclflow domain group list pop1"),
        (("pop", "add-edge", "pop1", "edge1"), "aclflow pop edge add pop1 edge1"),
        (("pop", "set-server", "pop1", "fs1", "--state", "lost"), "aclflow pop server set pop1 fs1 --state lost"),
        (("group", "add", "office", "192.0.2.1", "-t", "shop"), "aclflow group add shop"),
        (("group", "list", "--tenant", "shop"), "aclflow group list shop"),
        (("placement", "show", "pop1"), "aclflow domain placement show pop1"),
    ],
)
def test_an_old_spelling_answers_with_the_new_one(typed: tuple[str, ...], answer: str) -> None:
    ended = aclflow(*typed)
    assert (ended.code, answer in ended.err) == (2, True), ended


def test_tokens_are_made_at_the_service(run: Run, tmp_path: Path) -> None:
    """`token create` asks the service that ACLFLOW_URL names, and makes no database here."""
    secret = run("token", "create", "--role", "admin", "--days", "1", "--description", "of a colleague").out.strip()
    assert run("tenant", "list", token=secret).code == 0
    made = run("token", "create", "--role", "admin", "--json").json()
    assert made["token"].startswith("aclflow_")
    assert run("token", "delete", str(made["id"])).out == f"token {made['id']} is revoked\n"
    assert run("token", "create", "--role", "member", "--tenant", "nobody").code == 1
    nobodys = run("token", "create", "--role", "member")
    assert nobodys.err == "aclflow: --tenant: a token for the role member needs a tenant\n", nobodys
    lost = aclflow("token", "create", "--role", "admin", environment={"ACLFLOW_STATE_DIR": str(tmp_path)})
    assert (lost.code, "aclflow db token --role admin" in lost.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------ values in words


def test_values_are_taken_as_people_say_them(run: Run, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    words = ("--permit", "-p", "tcp", "-s", "192.0.2.9", "-d", "198.51.100.8", "--port", "ssh,ms-sql", "-y")
    assert run("acl", "rule", "add", tenant, "db", *words, "--ends", "2101-01-01").code == 0
    rule = rules(run, tenant)["db"]
    assert rule["destination_ports"] == [22, 1433]
    assert rule["expires"] == "2101-01-01T23:00:00+00:00", "it holds on that day"
    before = dt.datetime.now(dt.UTC)
    assert run("acl", "rule", "set", tenant, "db", "--ends", "in 2h", "--yes").code == 0
    ends = dt.datetime.fromisoformat(rules(run, tenant)["db"]["expires"])
    assert dt.timedelta(hours=2) <= ends - before < dt.timedelta(hours=3)
    for text in ("2020-01-01", "yesterday", "in 2 parsecs", "x" * 10_000, "\a"):
        ended = run("acl", "rule", "set", tenant, "db", "--ends", text, "--yes")
        assert (ended.code, "--ends" in ended.err) == (2, True), ended
    bad = run("acl", "rule", "set", tenant, "db", "--port", "no-such-service", "--yes")
    assert (bad.code, "--port" in bad.err) == (2, True)
    assert run("acl", "trace", tenant, "-s", "192.0.2.9", "-d", "198.51.100.8", "--port", "ssh").code == 0


def test_rest_takes_the_same_words_in_utc(service: Served, run: Run, tenant: str) -> None:
    with service.http() as http:
        rule = {**BLOCK, "id": "brief", "protocol": "tcp", "destination_ports": ["ssh", "8000-8080"]}
        made = http.post(f"/v1/tenants/{tenant}/acl/rules", json={**rule, "expires": "tomorrow 18:00"})
        assert made.status_code == 201, made.text
        stored = http.get(f"/v1/tenants/{tenant}/acl/rules/brief").json()
        assert stored["destination_ports"] == [22, "8000-8080"]
        assert stored["expires"].endswith("T18:00:00+00:00")
        past = http.post(f"/v1/tenants/{tenant}/acl/rules", json={**rule, "id": "late", "expires": "2020-01-01"})
        assert (past.status_code, past.json()["place"]) == (400, "expires")


def test_a_search_finds_what_decides(run: Run, tenant: str) -> None:
    words = ("--deny", "-s", "any", "-d", "any", "--last", "--yes")
    assert run("acl", "rule", "add", tenant, "rest", *words).code == 0

    def found(*asked: str) -> list[str]:
        return [rule["id"] for rule in run("acl", "rule", "list", tenant, *asked, "--json").json()]

    assert found("198.51.100.7:443") == ["web"]
    assert found("198.51.100.7:https") == ["web"]
    assert found("198.51.100.8:443") == ["block", "rest"]
    assert found("deny", "198.51.100.8:443") == ["block", "rest"]
    assert found("nothing-of-that") == []


def test_a_time_zone_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time would be taken for another, by hours."""
    monkeypatch.setenv("TZ", "Europe/Nowhere")
    with pytest.raises(BadInput, match="'Europe/Nowhere', which is no known time zone"):
        end_of("2090-01-31 12:00", "--ends")

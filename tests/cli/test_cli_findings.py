"""Stories about findings that do not cry wolf: ordinary lists, waivers, a baseline in a pipeline, reviews."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from served import Served

from orchestrator.store.records import Role

POLICIES = Path(__file__).parents[2] / "orchestrator" / "lab" / "policies"
BLOCK = {"id": "scanner", "action": "deny", "source": "192.0.2.66", "destination": "any"}
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
ADMIN = {"id": "admin", "action": "permit", "protocol": "tcp", "source": "192.0.2.66", "destination_ports": 22}
"""Never decides: the scanner is denied before."""
END = (dt.datetime.now(dt.UTC) + dt.timedelta(days=30)).isoformat()

Run = Callable[..., Ended]
_numbers = itertools.count()


def listed(*rules: object) -> str:
    return json.dumps({"rules": rules})


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant whose list has an error: a permit behind a deny of all its packets."""
    name = f"w-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    assert run("acl", "apply", name, "-", "--yes", stdin=listed(BLOCK, WEB, ADMIN)).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


@pytest.mark.parametrize("policy", sorted(POLICIES.iterdir()), ids=lambda path: path.name)
def test_the_demos_ordinary_lists_pass(policy: Path) -> None:
    ended = aclflow("acl", "check", str(policy), "--json")
    assert ended.code == 0
    findings = ended.json()["findings"]
    assert findings
    assert {finding["severity"] for finding in findings} == {"note"}
    assert all(finding["reason"] for finding in findings)
    assert aclflow("acl", "check", str(policy), "--fail-on", "note").code == 1


@pytest.mark.parametrize(
    ("rules", "severity", "kind"),
    [
        ((BLOCK, WEB), "note", "conflict"),
        ((WEB, BLOCK), "warning", "conflict"),
        ((BLOCK, ADMIN), "error", "shadowed"),
        ((WEB, {**WEB, "id": "again"}), "warning", "duplicate"),
        ((WEB, {**WEB, "id": "part", "source": "192.0.2.0/24"}), "warning", "shadowed"),
        (({**WEB, "id": "part", "source": "192.0.2.0/24"}, WEB), "note", "redundant"),
        (({"id": "all", "action": "permit"},), "warning", "wide"),
        (({"id": "out", "action": "permit", "direction": "egress"},), "note", "wide"),
    ],
)
def test_a_finding_weighs_what_it_means(rules: tuple[object, ...], severity: str, kind: str) -> None:
    closed = json.dumps({"egress_default": "deny", "rules": rules})
    ended = aclflow("acl", "check", "-", "--json", stdin=closed)
    assert (severity, kind) in {(each["severity"], each["kind"]) for each in ended.json()["findings"]}
    assert ended.code == (severity != "note")
    assert aclflow("acl", "check", "-", "--fail-on", "never", stdin=listed(*rules)).code == 0


def test_a_pipeline_fails_for_what_is_new(tmp_path: Path) -> None:
    """Write what is known once, commit it beside the list, and be told of the next mistake only."""
    file, baseline = tmp_path / "list.json", str(tmp_path / "known.json")
    file.write_text(listed(BLOCK, WEB, ADMIN))
    assert aclflow("acl", "check", str(file)).code == 1
    assert aclflow("acl", "check", str(file), "--write-baseline", baseline).code == 0
    known = aclflow("acl", "check", str(file), "--baseline", baseline)
    assert (known.code, known.out) == (0, "")
    assert "2 known" in known.err
    file.write_text(listed(BLOCK, WEB, ADMIN, {**WEB, "id": "again"}))
    fresh = aclflow("acl", "check", str(file), "--baseline", baseline, "--json")
    assert (fresh.code, [one["rules"][0] for one in fresh.json()["findings"]]) == (1, ["again"])
    file.write_text(listed(BLOCK, WEB))
    assert "1 known, 1 known and gone" in aclflow("acl", "check", str(file), "--baseline", baseline).err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00\x01\x7fELF",
        "[]",
        "{}",
        '{"version": 2, "lists": {}}',
        '{"version": 1, "lists": []}',
        '{"version": 1, "lists": {"a": [{"kind": "odd", "rules": ["a"]}]}}',
        '{"version": 1, "lists": {"a": [{"kind": "wide", "rules": [7]}]}}',
        '{"version": 1, "lists": {"a": [{"kind": "wide", "more": 1}]}}',
    ],
)
def test_a_baseline_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "known.json").write_text(text)
    ended = aclflow("acl", "check", "-", "--baseline", str(tmp_path / "known.json"), stdin=listed(WEB))
    assert (ended.code, "known.json" in ended.err) == (2, True), ended
    for name, content in {"binary.json": b"{\xe5\x00", "half.json": b'{"version":'}.items():
        (tmp_path / name).write_bytes(content)
        odd = aclflow("acl", "check", "-", "--baseline", str(tmp_path / name), stdin=listed(WEB))
        assert (odd.code, odd.err.startswith(f"aclflow: {tmp_path / name}, line 1: ")) == (2, True), odd
    missing = aclflow("acl", "check", "-", "--baseline", str(tmp_path / "none.json"), stdin=listed(WEB))
    assert (missing.code, "none.json" in missing.err) == (3, True)


# ------------------------------------------------------------------------------------------------- lists at the service


def test_a_tenants_list_is_judged_as_the_service_judges_it(run: Run, service: Served) -> None:
    """Its prefixes, its domain's return traffic and its quota are known; a word on the command line goes first."""
    run("domain", "create", "pop-e", "--return-traffic", "established")
    assert run("tenant", "create", "mine", "--domain", "pop-e", "--prefix", "198.51.100.0/24").code == 0
    replies = {"id": "replies", "action": "permit", "protocol": "tcp", "source_ports": 443, "established": True}
    soon = {**WEB, "expires": (dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)).isoformat()}
    assert run("acl", "apply", "mine", "-", "--yes", stdin=listed(replies, soon)).code == 0
    assert run("tenant", "quota", "set", "mine", "--rules", "40").code == 0

    ended = run("acl", "check", "mine", "--fail-on", "error", token=service.make_token(Role.READER, "mine"))
    assert ended.code == 0, ended
    assert "return traffic established; 2 of 40 rules, " in ended.err
    assert "'web' ends at 20" in ended.err
    document = run("acl", "check", "mine", "--json").json()
    (about,) = document["files"]
    assert (about["own"], about["return_traffic"]) == (["198.51.100.0/24"], "established")
    assert (about["quota"]["rules"], about["used"]["rules"], about["expiring"]) == (40, 2, ["web"])
    with service.client() as client:
        standing = client.acls.read_standing("mine", ("findings",))
    told = {(one.kind, one.severity, tuple(one.rules)) for one in standing.findings if one.kind != "expiring"}
    assert {(one["kind"], one["severity"], tuple(one["rules"])) for one in document["findings"]} == told
    assert ("redundant", ("replies",)) in {(kind, rules[:1]) for kind, _, rules in told}

    alone = run("acl", "check", "mine", "--return-traffic", "explicit", "--json").json()
    assert "redundant" not in {one["kind"] for one in alone["findings"]}, "by itself the list needs its replies"
    run("tenant", "delete", "mine", "--yes")


# -------------------------------------------------------------------------------------------------------------- waivers


def test_a_waived_finding_counts_no_more_anywhere(run: Run, tenant: str, service: Served) -> None:
    member = service.make_token(Role.MEMBER, tenant)
    assert run("acl", "check", tenant).code == 1
    words = ("--reason", "kept for the audit", "--ends", END)
    made = run("acl", "waiver", "add", tenant, "shadowed", "admin", *words, token=member)
    assert made.code == 0, made.err
    ended = run("acl", "check", tenant)
    assert (ended.code, "1 waived" in ended.err) == (0, True)
    with service.client() as client:
        standing = client.acls.read_standing(tenant, ("findings",))
        assert [(one.kind, one.severity) for one in standing.findings] == [("conflict", "note")]
        assert dict(standing.severities) == {"note": 1}
        (waived,) = standing.waived
        assert waived.waiver is not None
        assert (waived.kind, waived.waiver.reason) == ("shadowed", "kept for the audit")
    (shown,) = run("acl", "waiver", "list", tenant, "--json").json()
    assert (shown["kind"], shown["rules"], shown["reason"]) == ("shadowed", ["admin"], "kept for the audit")
    assert shown["author"].startswith("member")
    assert "kept for the audit" in run("acl", "waiver", "list", tenant).out
    assert run("acl", "waiver", "remove", tenant, str(shown["id"])).code == 0
    assert run("acl", "check", tenant).code == 1
    kinds = [each["kind"] for each in run("events", "--tenant", tenant, "--json").json()]
    assert kinds[-2:] == ["waiver.added", "waiver.removed"]


def test_a_conflict_is_waived_by_both_its_rules(run: Run, tenant: str) -> None:
    words = ("--reason", "meant so", "--ends", END)
    assert run("acl", "waiver", "add", tenant, "conflict", "scanner", *words).code == 2
    for kind, ghost in (("shadowed", "ghost"), ("group", "@ghost")):
        ended = run("acl", "waiver", "add", tenant, kind, ghost, *words)
        assert (ended.code, "ghost" in ended.err) == (1, True), "a typing error waives nothing"
    assert run("acl", "waiver", "add", tenant, "conflict", "scanner", "web", *words).code == 0
    assert run("acl", "check", tenant, "--only", "conflict", "--fail-on", "note").code == 0
    assert run("acl", "waiver", "add", tenant, "conflict", "scanner", "web", *words).code == 0
    assert len(run("acl", "waiver", "list", tenant, "--json").json()) == 1, "the second replaced the first"


def test_a_waiver_ends_when_it_says(run: Run, tenant: str, service: Served) -> None:
    words = ("--reason", "until the move", "--ends", "in 2h")
    assert run("acl", "waiver", "add", tenant, "shadowed", "admin", *words).code == 0
    with service.client() as client:
        assert dict(client.acls.read_standing(tenant, ("findings",)).severities) == {"note": 1}
        service.clock.ahead += dt.timedelta(hours=2)
        try:
            assert dict(client.acls.read_standing(tenant, ("findings",)).severities) == {"error": 1, "note": 1}
        finally:
            service.clock.ahead -= dt.timedelta(hours=2)
    assert len(run("acl", "waiver", "list", tenant, "--json").json()) == 1, "it is still told who took it"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("shadowed", "admin", "--reason", "", "--ends", END), "reason"),
        (("shadowed", "admin", "--reason", "a\nb", "--ends", END), "reason"),
        (("shadowed", "admin", "--reason", "x" * 10_000, "--ends", END), "reason"),
        (("shadowed", "admin", "--reason", "old", "--ends", "2020-01-01T00:00:00Z"), "ends"),
        (("shadowed", "admin\a", "--reason", "a", "--ends", END), "rules"),
        (("group", "admin", "--reason", "a", "--ends", END), "group"),
    ],
)
def test_a_waiver_says_why_and_until_when(run: Run, tenant: str, words: tuple[str, ...], place: str) -> None:
    ended = run("acl", "waiver", "add", tenant, *words)
    assert (ended.code, place in ended.err) == (2, True), ended
    assert run("acl", "waiver", "list", tenant, "--json").json() == []


def test_readers_and_others_waive_nothing(run: Run, tenant: str, service: Served) -> None:
    words = ("shadowed", "admin", "--reason", "mine", "--ends", END)
    reader = service.make_token(Role.READER, tenant)
    assert run("acl", "waiver", "add", tenant, *words, token=reader).code == 1
    run("tenant", "create", f"{tenant}-2", "--domain", f"d-{tenant}")
    other = service.make_token(Role.MEMBER, f"{tenant}-2")
    assert run("acl", "waiver", "add", tenant, *words, token=other).code == 1
    assert run("acl", "waiver", "list", tenant, token=other).code == 1
    run("tenant", "delete", f"{tenant}-2", "--yes")


# -------------------------------------------------------------------------------------------------------------- reviews


def test_a_review_shows_what_the_change_brings(run: Run, tenant: str) -> None:
    same = run("acl", "review", tenant, "-", stdin=listed(BLOCK, WEB, ADMIN))
    assert same.code == 0, same
    assert "the change brings no findings" in same.err
    again = run("acl", "review", tenant, "-", "--json", stdin=listed(BLOCK, WEB, ADMIN, {**WEB, "id": "again"}))
    assert (again.code, [one["rules"][0] for one in again.json()["findings"]]) == (1, ["again"])


def test_a_finding_that_gets_worse_is_brought(run: Run, tenant: str) -> None:
    part = {**WEB, "id": "part", "source": "192.0.2.0/24"}
    assert run("acl", "apply", tenant, "-", "--yes", stdin=listed(WEB, part)).code == 0
    flipped = run("acl", "review", tenant, "-", "--json", stdin=listed({**WEB, "action": "deny"}, part))
    assert [(one["severity"], one["kind"]) for one in flipped.json()["findings"]] == [("error", "shadowed")]

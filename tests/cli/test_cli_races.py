"""Two people commit at once, each by the command line or over REST: nobody's edit is lost without a word."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from interleaving import happen_before
from served import Served

from orchestrator.client import Client
from orchestrator.errors import Stale
from orchestrator.policy.formats.native import acl_from_json, rule_from_json, rule_to_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.policy.model import Acl

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
BLOCK = {"id": "block", "action": "deny", "source": "192.0.2.0/24"}
THEIRS = {"id": "theirs", "action": "permit", "protocol": "udp", "destination": "198.51.100.9", "destination_ports": 53}
MINE = {"id": "mine", "action": "permit", "protocol": "tcp", "destination": "198.51.100.8", "destination_ports": 22}

Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant whose list is at version 2."""
    name = f"r-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    for rules in ([WEB], [WEB, BLOCK]):
        assert run("acl", "apply", name, "-", "--yes", stdin=json.dumps({"rules": rules})).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


def rules_of(acl: Acl) -> dict[str, Any]:
    return {rule.id: rule for rule in acl.rules}


# ---------------------------------------------------------------------------------------------- what a colleague does

THEY: dict[str, tuple[Callable[[Run, Client, str], object], Callable[[Acl], bool]]] = {
    "add over REST": (
        lambda _, client, tenant: client.acls.insert_rule(tenant, rule_from_json(THEIRS)),
        lambda acl: "theirs" in rules_of(acl),
    ),
    "change over REST": (
        lambda _, client, tenant: client.acls.put_rule(tenant, rule_from_json({**WEB, "source": "203.0.113.0/24"})),
        lambda acl: "203.0.113.0/24" in str(rules_of(acl)["web"].source),
    ),
    "delete over REST": (
        lambda _, client, tenant: client.acls.delete_rule(tenant, "web"),
        lambda acl: "web" not in rules_of(acl),
    ),
    "replace over REST": (
        lambda _, client, tenant: client.acls.put(
            tenant, acl_from_json({"rules": [WEB, BLOCK, THEIRS]}), etag=client.acls.read(tenant).etag
        ),
        lambda acl: "theirs" in rules_of(acl),
    ),
    "add by command": (
        lambda run, _, tenant: run(
            *("acl", "rule", "add", tenant, "theirs", "--permit", "-p", "udp", "-s", "any", "-d", "198.51.100.9"),
            *("--port", "53", "--yes"),
        ),
        lambda acl: "theirs" in rules_of(acl),
    ),
    "apply by command": (
        lambda run, _, tenant: run(
            "acl", "apply", tenant, "-", "--yes", stdin=json.dumps({"rules": [WEB, BLOCK, THEIRS]})
        ),
        lambda acl: "theirs" in rules_of(acl),
    ),
    "restore by command": (
        lambda run, _, tenant: run("acl", "restore", tenant, "1", "--yes"),
        lambda acl: "block" not in rules_of(acl),
    ),
}
"""What somebody else commits meanwhile, and how it is seen in a list."""


def _applied(run: Run, tenant: str) -> bool:
    taken = write(acl_from_json({"rules": [WEB, BLOCK, MINE]}), "native", TakenFrom(tenant, 2)).text
    return run("acl", "apply", tenant, "-", "--yes", stdin=taken).code == 0


def _replaced(client: Client, tenant: str) -> bool:
    """What the console and any program does: read, edit, write with the ETag that was read."""
    seen = client.acls.read(tenant)
    wanted = replace(seen.acl, rules=(*seen.acl.rules, rule_from_json(MINE)))
    try:
        client.acls.put(tenant, wanted, etag=seen.etag)
    except Stale:
        return False
    return True


ADD = ("mine", "--permit", "-p", "tcp", "-s", "any", "-d", "198.51.100.8", "--port", "22", "--yes")
I_DO: dict[str, tuple[str, Callable[[Run, Client, str], bool], Callable[[Acl], bool]]] = {
    "apply by command": ("acls.put", lambda run, _, tenant: _applied(run, tenant), lambda acl: "mine" in rules_of(acl)),
    "add by command": (
        "acls.insert_rule",
        lambda run, _, tenant: run("acl", "rule", "add", tenant, *ADD).code == 0,
        lambda acl: "mine" in rules_of(acl),
    ),
    "change by command": (
        "acls.put_rule",
        lambda run, _, tenant: run("acl", "rule", "set", tenant, "web", "--port", "80", "--yes").code == 0,
        lambda acl: rule_to_json(rules_of(acl)["web"])["destination_ports"] == 80,
    ),
    "move by command": (
        "acls.move_rule",
        lambda run, _, tenant: run("acl", "rule", "move", tenant, "block", "--before", "web", "--yes").code == 0,
        lambda acl: [*rules_of(acl)].index("block") < [*rules_of(acl), "web"].index("web"),
    ),
    "delete by command": (
        "acls.delete_rule",
        lambda run, _, tenant: run("acl", "rule", "delete", tenant, "block", "--yes").code == 0,
        lambda acl: "block" not in rules_of(acl),
    ),
    "restore by command": (
        "acls.restore",
        lambda run, _, tenant: run("acl", "restore", tenant, "1", "--yes").code == 0,
        lambda acl: [*rules_of(acl)] == ["web"],
    ),
    "replace over REST": (
        "acls.put",
        lambda _, client, tenant: _replaced(client, tenant),
        lambda acl: "mine" in rules_of(acl),
    ),
}
"""What I commit: the request that writes it, and how it is seen in a list."""


@pytest.mark.parametrize("mine", I_DO)
@pytest.mark.parametrize("theirs", THEY)
def test_two_at_once_lose_nothing(
    run: Run, tenant: str, service: Served, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str
) -> None:
    """A colleague commits after I was shown my change and before it is written."""
    verb, commit, is_mine = I_DO[mine]
    meanwhile, is_theirs = THEY[theirs]
    with service.client() as client:
        happen_before(monkeypatch, verb, lambda _: meanwhile(run, client, tenant))
        is_written = commit(run, client, tenant)
        found = client.acls.read(tenant).acl
        assert is_theirs(found), "what the colleague committed is there"
        if is_written:
            assert is_mine(found), "and so is mine, where I was told so"
        assert client.acls.read(tenant).version == (4 if is_written else 3)


# ----------------------------------------------------------------------------------------- what is beside a list

OFFICE = "192.0.2.0/24"
BESIDE: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "group": ("groups.put", ("group", "put", "{t}", "office", OFFICE), ("group", "add", "{t}", "office", "192.0.3.1")),
    "expectations": (
        "expectations.delete",
        ("acl", "expectations", "delete", "{t}", "--yes"),
        ("acl", "expectations", "set", "{t}", "-", "--yes"),
    ),
    "quota": (
        "tenants.set_quota",
        ("tenant", "quota", "set", "{t}", "--rules", "9"),
        ("tenant", "set", "{t}", "--name", "X"),
    ),
    "approvals": (
        "proposals.set_approvals",
        ("domain", "approval", "set", "d-{t}", "--add", "m-{t}"),
        ("domain", "approval", "set", "d-{t}", "--operator-rules"),
    ),
    "packet log": (
        "packet_log.set_limit",
        ("domain", "log", "set", "d-{t}", "--rate", "33"),
        ("domain", "log", "set", "d-{t}", "--burst", "9"),
    ),
    "spread": ("spread.configure", ("spread", "set", "d-{t}", "{f}/1"), ("spread", "set", "d-{t}", "{f}/2")),
}
"""What I write, by which request, and what somebody else writes just before it. {f} has two spreads by weight."""


def spread_of(weight: float) -> str:
    """A file for `spread set`."""
    sides = {side: {"port": side, "mac": "0a:00:00:00:00:01"} for side in ("left", "right")}
    return json.dumps({"firewalls": [{"name": "fw1", "number": 1, "weight": weight, **sides}]})


@pytest.mark.parametrize("what", BESIDE)
def test_what_somebody_wrote_meanwhile_is_not_replaced_unseen(
    run: Run, tenant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    verb, mine, theirs = BESIDE[what]
    for weight in (1, 2):
        (tmp_path / str(weight)).write_text(spread_of(weight))
    assert run("group", "put", tenant, "office", OFFICE).code == 0
    assert run("tenant", "create", f"m-{tenant}", "--domain", f"d-{tenant}").code == 0
    said = "nobody reaches 198.51.100.7:22"

    def change(_: object) -> None:
        assert run(*(word.format(t=tenant, f=tmp_path) for word in theirs), stdin=said).code == 0

    happen_before(monkeypatch, verb, change)
    refused = run(*(word.format(t=tenant, f=tmp_path) for word in mine))
    assert (refused.code, "nothing was written; run it again" in refused.err) == (1, True), refused
    again = run(*(word.format(t=tenant, f=tmp_path) for word in mine), *(["--yes"] if what == "group" else []))
    assert again.code == 0, again


def test_a_group_is_written_although_other_rules_changed_meanwhile(
    run: Run, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(_: object) -> None:
        assert run("acl", "rule", "delete", tenant, "block", "--yes").code == 0

    happen_before(monkeypatch, "groups.put", change)
    assert run("group", "put", tenant, "office", OFFICE).code == 0
    assert run("group", "show", tenant, "office").out == f"{OFFICE}\n"


def test_members_that_a_group_loses_are_shown_and_asked_about(run: Run, tenant: str) -> None:
    assert run("group", "put", tenant, "office", OFFICE, "192.0.3.1").code == 0
    unasked = run("group", "put", tenant, "office", OFFICE)
    assert (unasked.code, "- 192.0.3.1/32" in unasked.out, "--yes" in unasked.err) == (2, True, True), unasked
    assert "192.0.3.1/32" in run("group", "show", tenant, "office").out
    assert run("group", "put", tenant, "office", OFFICE, "--yes").code == 0
    assert run("group", "show", tenant, "office").out == f"{OFFICE}\n"


def test_a_waiver_that_is_replaced_is_told(run: Run, tenant: str) -> None:
    words = ("acl", "waiver", "add", tenant, "redundant", "web", "--ends", "in 4w")
    assert run(*words, "-m", "theirs").err == ""
    told = run(*words, "-m", "mine")
    assert (told.code, "in the place of waiver 1 by" in told.err, "theirs" in told.err) == (0, True, True), told

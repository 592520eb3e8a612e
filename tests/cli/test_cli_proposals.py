"""Stories of two persons at the command line: one changes a list, another approves it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from command_line import Ended
from served import Served

from orchestrator.store.records import Role

Run = Callable[..., Ended]
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 443}
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> str:
    """A marked tenant with one rule."""
    name = f"p{next(_numbers)}"
    assert run("domain", "create", f"d-{name}").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}").code == 0
    assert run("acl", "apply", name, "-", "--yes", stdin=json.dumps({"rules": [WEB]})).code == 0
    said = run("domain", "approval", "set", f"d-{name}", "--operator-rules", "--add", name)
    assert f"the operator rules, the list of {name}" in said.out
    return name


@pytest.fixture
def other(service: Served) -> str:
    """Another administrator."""
    return service.make_token(Role.ADMIN, description="Ann")


def rules_of(run: Run, tenant: str) -> list[str]:
    return [rule["id"] for rule in run("acl", "show", tenant, "--json").json()["rules"]]


def proposal_of(run: Run, about: str) -> str:
    found: str = run("proposal", "list", about, "--json").json()[0]["id"]
    return found


def test_a_list_goes_out_when_another_person_approves_it(run: Run, tenant: str, other: str) -> None:
    said = run(
        "acl", "apply", tenant, "-", "--yes", "-m", "ssh too", stdin=json.dumps({"rules": [{**WEB, "id": "ssh"}]})
    )
    assert said.code == 0, said.err
    assert "nothing has changed yet" in said.out
    assert rules_of(run, tenant) == ["web"]
    name = proposal_of(run, tenant)
    shown = run("proposal", "show", tenant, name[:8], token=other)
    assert "ssh too" in shown.out
    assert "- web" in shown.out
    assert "+ ssh" in shown.out
    refused = run("proposal", "approve", tenant, name[:8], "--no-wait")
    assert refused.code != 0
    assert "another person must approve" in refused.err
    assert run("proposal", "approve", tenant, name[:8], token=other).code == 0
    assert rules_of(run, tenant) == ["ssh"]
    assert "\napproved by Ann (admin " in run("proposal", "show", tenant, name).out
    assert "approved" in run("proposal", "list", tenant).out


def test_a_rule_and_a_group_are_proposed_too(run: Run, tenant: str) -> None:
    for command in (
        ("acl", "rule", "add", tenant, "dns", "--permit", "--protocol", "udp", "-s", "any", "-d", "any", "--yes"),
        ("group", "put", tenant, "office", "192.0.2.0/24"),
    ):
        said = run(*command)
        assert said.code == 0, said.err
        assert "another person must approve" in said.out
    assert rules_of(run, tenant) == ["web"]


def test_operator_rules_and_the_mark_are_proposed(run: Run, tenant: str, other: str) -> None:
    about = f"domain/d-{tenant}"
    said = run(
        "operator-rule",
        "add",
        f"d-{tenant}",
        "no-udp",
        "--deny",
        "--protocol",
        "udp",
        "-s",
        "any",
        "-d",
        "any",
        "--yes",
    )
    assert said.code == 0, said.err
    assert "another person must approve" in said.out
    assert "+ no-udp" in run("proposal", "show", about, proposal_of(run, about)).out
    assert run("proposal", "approve", about, proposal_of(run, about), token=other).code == 0
    assert "no-udp" in run("operator-rule", "list", f"d-{tenant}").out
    said = run("domain", "approval", "set", f"d-{tenant}", "--no-operator-rules", "--remove", tenant)
    assert "another person must approve" in said.out
    assert run("proposal", "approve", about, proposal_of(run, about)[:12], token=other).code == 0
    assert run("domain", "approval", "show", f"d-{tenant}").out.rstrip().endswith("nothing")


def test_a_proposal_is_rejected_or_withdrawn(run: Run, tenant: str, other: str) -> None:
    for verb, token in (("reject", other), ("withdraw", None)):
        run("acl", "apply", tenant, "-", "--yes", stdin=json.dumps({"rules": []}))
        name = proposal_of(run, tenant)
        done = run("proposal", verb, tenant, name, **({"token": token} if token else {}))
        assert done.code == 0, done.err
        assert rules_of(run, tenant) == ["web"]
    missing = run("proposal", "show", tenant, "ffff")
    assert "no proposal 'ffff'" in missing.err


def test_a_token_says_who_bears_it(run: Run) -> None:
    assert run("token", "create", "--role", "admin", "--person", "Ann Lee").code == 0
    assert "Ann Lee" in run("token", "list").out

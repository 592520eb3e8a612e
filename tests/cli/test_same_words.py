"""One state has one word: on the command line, over REST and in the console."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from served import Served

from orchestrator.client import PointReport

ROOT = Path(__file__).parents[2]
OTHERS = re.compile(
    r"\b(lagging|lags?|laggards?|(older|earlier) generation|at an (older|earlier) version|out of date|outdated|"
    r"not (yet )?enforced after|enforced everywhere|enforced on every host of)\b",
    re.IGNORECASE,
)
"""Other words for a host that is *behind*, and for a list that is *in force*."""
NO_HOSTS = {"Show the members of a firewall cluster"}
"""Texts about something else: messages between members of a cluster lag."""

Run = Callable[..., Ended]


@pytest.fixture
def late(run: Run, service: Served) -> Callable[[], None]:
    """A tenant `shop` whose list is in force on h1 at the generation before; calling it brings h1 up."""
    assert run("domain", "create", "pop").code == 0
    assert run("tenant", "create", "shop", "--domain", "pop", "--prefix", "198.51.100.0/24").code == 0
    assert run("domain", "host", "add", "pop", "h1", "--datapath-id", "00000000000000a1", "--uplink", "up0").code == 0
    who = service.client("").enrolment.enrol(run("domain", "invite", "pop").out.strip(), name="c1", kind="openflow")

    def report() -> None:
        with service.client() as client, service.client(who.token) as enforcer:
            points = [PointReport("h1", client.domains.read("pop").generation, b"\0" * 16, "enforced")]
            enforcer.points.report("pop", who.enforcer, points=points)

    report()
    permit = json.dumps({"rules": [{"id": "web", "action": "permit", "protocol": "tcp"}]})
    assert run("acl", "apply", "shop", "-", "--yes", "--no-wait", stdin=permit).code == 0
    return report


def test_a_late_host_is_behind_and_a_list_that_is_held_is_in_force(
    run: Run, service: Served, late: Callable[[], None]
) -> None:
    commands = (
        ("domain", "show", "pop"),
        ("domain", "host", "list", "pop"),
        ("domain", "wait", "pop", "--timeout", "0.1"),
        ("status",),
        ("tenant", "show", "shop"),
        ("acl", "show", "shop"),
        ("acl", "versions", "shop"),
    )
    for command in commands:
        ended = run(*command)
        told = ended.out + ended.err
        assert re.search(r"\bbehind\b", told), (command, told)
        assert "h1" in told, (command, told)
        assert not OTHERS.search(told), (command, told)
    with service.http() as http:
        assert http.get("/v1/tenants/shop").json()["in_force"]["state"] == "behind"
        kinds = {each["kind"] for each in http.get("/v1/status").json()["concerns"]}
        assert kinds - {"silent"} == {"behind"}, "on a slow machine nobody was heard of for a while by now"
    late()
    for command in commands:
        ended = run(*command)
        assert ended.code == 0, command
        assert "in force" in ended.out + ended.err, command
        assert "behind" not in ended.out + ended.err, command
    for command in (("tenant", "show", "shop"), ("acl", "show", "shop"), ("acl", "versions", "shop")):
        shown = run(*command)
        assert "is in force since 2" in shown.out + shown.err, command
    with service.http() as http:
        assert http.get("/v1/tenants/shop").json()["in_force"]["state"] == "in force"


def texts_of(path: Path) -> Iterator[str]:
    """The texts of a module that a person may read: those of several words."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def descriptions(node: Any) -> Iterator[str]:
    """The descriptions of a document of OpenAPI."""
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in members:
        if name in ("description", "summary") and isinstance(value, str):
            yield value
        else:
            yield from descriptions(value)


def others_in(texts: Iterator[str]) -> list[str]:
    return [each for each in texts if OTHERS.search(each) and not each.startswith(tuple(NO_HOSTS))]


def test_no_text_has_another_word() -> None:
    modules = [path for folder in ("orchestrator/cli", "api/console") for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)): found for path in modules if (found := others_in(texts_of(path)))} == {}
    document = json.loads((ROOT / "tests" / "api" / "openapi.json").read_text())
    assert others_in(descriptions(document)) == []


def test_another_word_is_found() -> None:
    assert others_in(iter(["host2 lags", "2 hosts behind", "enforced at an older generation"])) == [
        "host2 lags",
        "enforced at an older generation",
    ]

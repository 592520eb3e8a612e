"""Stories of people who type the words of kubectl, terraform, OpenStack and AWS: they mean what they mean there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended, aclflow

from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.lazy import load
from orchestrator.cli.tree import SYNONYMS, TREE

WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}

Run = Callable[..., Ended]
_numbers = itertools.count()


@pytest.fixture
def tenant(run: Run) -> Iterator[str]:
    """A tenant with one rule, in a domain without hosts."""
    name = f"w-{next(_numbers)}"
    assert run("domain", "create", f"d-{name}", "--return-traffic", "established").code == 0
    assert run("tenant", "create", name, "--domain", f"d-{name}", "--prefix", "198.51.100.0/24").code == 0
    assert run("acl", "apply", name, "-", "--yes", stdin=json.dumps({"rules": [WEB]})).code == 0
    yield name
    run("tenant", "delete", name, "--yes")


# ------------------------------------------------------------------------------------------------ nouns and their verbs


def test_a_tenant_is_shown_with_what_it_owns_and_may(run: Run, tenant: str) -> None:
    assert run("tenant", "set", tenant, "--name", "The shop").out == f"tenant {tenant} is called The shop\n"
    assert run("tenant", "quota", "set", tenant, "--rules", "50").code == 0
    shown = run("tenant", "show", tenant).out
    for said in (
        f"tenant {tenant} (The shop)", "owns 198.51.100.0/24", "return traffic established", "rules: 1 of 50",
        "flow entries: ", "list: version 1 is in force since 20",
    ):  # fmt: skip
        assert said in shown
    document = run("tenant", "show", tenant, "--json").json()
    assert (document["return_traffic"], document["in_force"]["state"]) == ("established", "in force")


def test_a_tenants_prefixes_come_and_go(run: Run, tenant: str) -> None:
    assert run("tenant", "prefix", "add", tenant, "2001:db8::/32").code == 0
    assert run("tenant", "prefix", "list", tenant).out.splitlines() == ["prefix", "198.51.100.0/24", "2001:db8::/32"]
    assert run("tenant", "prefix", "list", tenant, "--json").json() == ["198.51.100.0/24", "2001:db8::/32"]
    assert run("tenant", "prefix", "delete", tenant, "2001:db8::/32").code == 0
    assert run("tenant", "prefix", "delete", tenant, "2001:db8::/32").code == 1
    assert run("tenant", "prefix", "list", tenant, "-o", "csv").out == "prefix\n198.51.100.0/24\n"


def test_a_tenants_endpoints_are_listed_for_the_tenant_itself(run: Run, tenant: str) -> None:
    words = ("--tenant", tenant, "--port", "tap1", "--mac", "0a:00:00:00:00:01", "--prefix", "198.51.100.7")
    assert run("domain", "endpoint", "add", f"d-{tenant}", "web1", *words).code == 0
    member = run("token", "create", "--role", "member", "--tenant", tenant).out.strip()
    listed = run("tenant", "endpoint", "list", tenant, token=member)
    assert listed.out.splitlines() == ["endpoint\tprefixes", "web1\t198.51.100.7/32"]
    assert run("domain", "endpoint", "remove", f"d-{tenant}", "web1").code == 0, "noun and verb, as everywhere"


def test_one_rule_is_shown(run: Run, tenant: str) -> None:
    assert "web\tingress\tpermit\ttcp\tany\t198.51.100.7/32" in run("acl", "rule", "show", tenant, "web").out
    gone = run("acl", "rule", "show", tenant, "ghost")
    assert (gone.code, "ghost" in gone.err) == (1, True)


def test_a_rules_ports_and_end_are_listed_as_people_say_them(run: Run, tenant: str) -> None:
    changed = ("--source-port", "9", "--ends", "2090-01-01T10:00:30Z", "--yes", "--no-wait")
    assert run("acl", "rule", "set", tenant, "web", *changed).code == 0
    listed = run("acl", "rule", "list", tenant).out
    assert "198.51.100.7/32\tsource port 9, port 443, until 2090-01-01 10:00 UTC\n" in listed


def test_a_bearer_is_told_who_they_are(run: Run, tenant: str) -> None:
    secret = run("token", "create", "--role", "reader", "--tenant", tenant, "--description", "audit").out.strip()
    shown = run("token", "show", token=secret)
    assert shown.out.startswith(f"reader of {tenant}: token ")
    assert shown.out.endswith(", audit\n")
    assert run("token", "show", "--json", token=secret).json()["role"] == "reader"


# ----------------------------------------------------------------------------------------------------- words of others


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("tenant ls", "tenant list"),
        ("tenant get", "tenant list"),
        ("tenant get {tenant}", "tenant show {tenant}"),
        ("tenant describe {tenant}", "tenant show {tenant}"),
        ("tenants list", "tenant list"),
        ("project list", "tenant list"),
        ("projects ls -o json", "tenant list --json"),
        ("acl get {tenant}", "acl show {tenant}"),
        ("acl history {tenant}", "acl versions {tenant}"),
        ("acl validate {tenant}", "acl check {tenant}"),
        ("acl rules list {tenant}", "acl rule list {tenant}"),
        ("acl rule ls {tenant} --columns id,action", "acl rule list {tenant} --column id --column action"),
        ("acl rule list {tenant} -c id", "acl rule list {tenant} --column id"),
        ("acl rule rm {tenant} web --dry-run", "acl rule delete {tenant} web --dry-run"),
        ("acl rule update {tenant} web --port 80 --dry-run", "acl rule set {tenant} web --port 80 --dry-run"),
        ("acl rollback {tenant} 0 --dry-run", "acl restore {tenant} 0 --dry-run"),
        (
            "acl rule add {tenant} x --allow --proto tcp -s any -d any --dport 80 --sport 9 --dry-run",
            "acl rule add {tenant} x --permit -p tcp -s any -d any --port 80 --source-port 9 --dry-run",
        ),
        (
            "acl rule set {tenant} web --expires 2090-01-01 --dry-run",
            "acl rule set {tenant} web --ends 2090-01-01 --dry-run",
        ),
        ("domain get d-{tenant}", "domain show d-{tenant}"),
        ("help acl rule add", "acl rule add --help"),
        ("acl help show", "acl show --help"),
        ("help", "--help"),
        ("acl rule help", "acl rule --help"),
    ],
)
def test_a_word_of_another_tool_does_what_is_meant(run: Run, tenant: str, typed: str, ours: str) -> None:
    theirs, own = (run(*text.format(tenant=tenant).split()) for text in (typed, ours))
    assert theirs == own
    assert own.out or own.err


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("get tenants", "`aclflow tenant list`"),
        ("get tenant shop", "`aclflow tenant show shop`"),
        ("describe domain pop1", "`aclflow domain show pop1`"),
        ("create tenant shop --domain pop1", "`aclflow tenant create shop --domain pop1`"),
        ("delete rule shop web", "`aclflow acl rule delete shop web`"),
        ("acl list", "`aclflow tenant list`"),
        ("acl rules shop", "`aclflow acl rule list shop`"),
        ("rule add shop web", "`aclflow acl rule add shop web`"),
        ("apply shop list.json", "`aclflow acl apply shop list.json`"),
        ("apply -f list.json", "`aclflow acl apply -f list.json`"),
        ("acl apply -f list.json shop", "aclflow acl apply shop list.json"),
        ("login", "`aclflow context add`"),
        ("whoami", "`aclflow token show`"),
        ("version", "`aclflow --version`"),
        ("security group list", "`aclflow acl show TENANT`"),
    ],
)
def test_a_word_that_is_not_ours_is_answered_with_ours(typed: str, answer: str) -> None:
    ended = aclflow(*typed.split())
    assert (ended.code, answer in ended.err) == (2, True), ended


def test_a_typing_error_is_not_taken_for_an_argument() -> None:
    ended = aclflow("tenant", "lst")
    assert (ended.code, "'list'" in ended.err) == (2, True), ended


def branches(branch: Branch = TREE) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        if isinstance(child, Branch):
            yield from branches(child)


def test_no_synonym_hides_a_command() -> None:
    """A group's own word is its own; and what answers an old spelling leads to a command that there is."""
    for branch in branches():
        names = {child.name for child in branch.children}
        assert names.isdisjoint(each.name for each in branch.moved), branch.name
        for moved in branch.moved:
            node: Branch | Leaf = TREE
            for word in itertools.takewhile(lambda word: word.islower() and not word.startswith("-"), moved.to.split()):
                if isinstance(node, Branch):
                    node = next((child for child in node.children if child.name == word), node)
            assert node is not TREE or moved.to == "--version", moved
            assert isinstance(node, Branch) or load(node)
    assert {"delete", "create", "ls"} <= SYNONYMS.keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tenant apply shop", "there is no command 'apply': aclflow tenant has"),
        ("acl waiver edit shop 1", "there is no command 'edit': aclflow acl waiver has"),
    ],
)
def test_a_verb_that_a_noun_has_not_is_not_taken_for_a_name(run: Run, words: str, said: str) -> None:
    ended = run(*words.split())
    assert (ended.code, said in ended.err, "did you mean" in ended.err) == (2, True, False), ended


def test_a_group_is_set_as_other_nouns_are(run: Run, tenant: str) -> None:
    assert run("group", "set", tenant, "office", "192.0.2.1").code == 0
    assert "192.0.2.1/32" in run("group", "show", tenant, "office").out


def test_verbs_stand_alone() -> None:
    """Every command is noun, verb: `host add`, never `add-host`."""
    verbs = {"add", "create", "delete", "invite", "list", "remove", "set", "show"}
    names = {child.name for branch in branches() for child in branch.children}
    assert {name for name in names if "-" in name and verbs.intersection(name.split("-"))} == set()


def test_a_file_given_as_kubectl_takes_it_is_told_where_it_goes(run: Run, tenant: str, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"rules": []}))
    ended = run("acl", "apply", "-f", str(path), tenant, "--yes")
    assert (ended.code, f"aclflow acl apply {tenant} {path}" in ended.err) == (2, True)
    assert run("acl", "rule", "list", tenant, "-c", "id").out == "id\nweb\n"


# ------------------------------------------------------------------------------------------------- texts that are odd

NAMES = (
    "acl rule add {tenant} {text} --deny -s any -d any --yes",
    "group put {tenant} {text} 192.0.2.1",
    "tenant create {text} --domain d-{tenant}",
    "domain create {text}",
    "operator-rule add d-{tenant} {text} --deny -s any -d any --yes",
    "domain endpoint add d-{tenant} {text} --tenant {tenant} --port t1 --mac 0a:00:00:00:00:09 --prefix 198.51.100.9",
    "context add {text} --url http://127.0.0.1:1 --token-file -",
)
"""Where an id is given: letters, digits and a few signs."""
LINES = (
    "acl rule set {tenant} web --description {text} --yes",
    "acl rule set {tenant} web --owner {text} --yes",
    "acl rule set {tenant} web --port 80 --message {text} --yes",
    "tenant set {tenant} --name {text}",
    "token create --role reader --tenant {tenant} --description {text}",
    "acl waiver add {tenant} wide web --ends in_4w --reason {text}",
    "acl draft share {tenant} {file} --message {text}",
)
"""Where a line of text is given, in any script."""
ODD = {
    "long": "x" * 10_000,
    "bell": "a\ab",
    "lines": "two\nlines",
    "escape": "\x1b[2J",
    "nothing but marks": "\u200f" * 3,
}


def typed(command: str, **values: str) -> list[str]:
    return [word.format(**values).replace("in_4w", "in 4w") for word in command.split()]


@pytest.mark.parametrize("command", NAMES)
def test_an_id_is_of_few_signs(run: Run, tenant: str, command: str) -> None:
    for text in (*ODD.values(), "שלום", "safe\u202egnp"):
        ended = run(*typed(command, tenant=tenant, text=text), stdin="secret")
        assert ended.code in {1, 2}, (text, ended)
        assert "use 1 to 64 letters, digits and _ . : -" in ended.err, (text, ended)
        assert len(ended.err) < 300, "what is refused is not shown at any length"
        assert not set(ended.err) & {"\a", "\x1b", "\u202e", "\u200f"}, "and cannot steer the terminal"
    assert run("acl", "rule", "list", tenant, "-c", "id").out == "id\nweb\n"


@pytest.mark.parametrize("command", LINES)
def test_a_line_is_of_some_length_and_in_any_script(run: Run, tenant: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "draft.json"
    file.write_text(json.dumps({"rules": [WEB]}))
    for name in ("long", "bell", "lines", "escape"):
        ended = run(*typed(command, tenant=tenant, text=ODD[name], file=str(file)))
        assert ended.code in {1, 2}, (name, ended)
        assert len(ended.err) < 300
        assert not set(ended.err) & {"\a", "\x1b"}
    kept = "שלום, CHG-1234, مرحبا"
    ended = run(*typed(command, tenant=tenant, text=kept, file=str(file)))
    assert ended.code == 0, ended


def test_marks_of_direction_are_shown_escaped(run: Run, tenant: str) -> None:
    """A text may hold them, for its script needs them; a table shows them, so that no line reads otherwise."""
    assert run("tenant", "set", tenant, "--name", "safe\u202egnp").code == 0
    assert "safe\\u202egnp" in run("tenant", "show", tenant).out
    assert "\u202e" not in run("tenant", "list").out
    assert run("tenant", "show", tenant, "--json").json()["name"] == "safe\u202egnp"

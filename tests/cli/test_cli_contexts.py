"""Stories of people with several services, and of people who want a table in another form."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from command_line import Ended, aclflow
from served import Served

ROOT = Path(__file__).parents[2]
WIDE = {"id": "wide", "action": "permit", "protocol": "tcp", "destination_ports": 443}
Run = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Callable[..., Ended]]:
    """Commands of a user who has a folder for configuration and nothing else."""

    def call(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        return aclflow(
            *arguments, stdin=stdin, environment={"XDG_CONFIG_HOME": str(tmp_path / "config"), **environment}
        )

    call.file = tmp_path / "config" / "aclflow" / "contexts.json"  # type: ignore[attr-defined]
    return call


def test_a_service_is_reached_by_its_name(home: Run, service: Served) -> None:
    """Add a context once, and type neither URL nor token again."""
    lost = home("tenant", "list")
    assert (lost.code, "aclflow context add" in lost.err) == (3, True)
    added = home("context", "add", "here", "--url", service.url, "--token-file", "-", stdin=service.token + "\n")
    assert (added.code, "in use" in added.out) == (0, True), added
    assert home("tenant", "list").code == 0
    file: Path = home.file  # type: ignore[attr-defined]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o077) == (0o600, 0)
    other = home("context", "add", "there", "--url", "http://127.0.0.1:1", "--token-file", "-", "--no-use", stdin="x")
    assert other.code == 0
    assert home("context", "list", "-o", "csv").out.splitlines()[1:] == [
        f"*,here,{service.url},",
        ",there,http://127.0.0.1:1,",
    ]
    assert home("tenant", "list", ACLFLOW_CONTEXT="there").code == 3
    assert home("context", "use", "there").code == 0
    assert home("tenant", "list").code == 3
    assert home("tenant", "list", ACLFLOW_CONTEXT="here").code == 0
    assert home("context", "show", "here", "--json").json()["url"] == service.url
    for verb in ("list", "show"):
        assert service.token not in home("context", verb, "--json").out, "no secret is shown again"
    assert home("context", "remove", "there").code == 0
    gone = home("tenant", "list", ACLFLOW_CONTEXT="there")
    assert (gone.code, "no context 'there'" in gone.err) == (1, True)
    assert home("context", "show").code == 1


def test_a_token_is_sent_to_its_own_service_only(home: Run, service: Served) -> None:
    home("context", "add", "here", "--url", service.url, "--token-file", "-", stdin=service.token)
    for ended in (
        home("tenant", "list", "--url", "http://127.0.0.1:1"),
        home("tenant", "list", ACLFLOW_URL="http://127.0.0.1:1"),
    ):
        assert (ended.code, "whose token is not sent there" in ended.err) == (2, True), ended
    assert home("tenant", "list", "--url", service.url + "/").code == 0
    elsewhere = {"ACLFLOW_URL": "http://127.0.0.1:1", "ACLFLOW_TOKEN": "x"}
    assert home("tenant", "list", **elsewhere).code == 3, "the environment goes before the context"


def test_a_service_is_not_spoken_to_in_clear_over_a_network_unless_told_to(home: Run) -> None:
    far = "http://192.0.2.1:8420"
    words = ("context", "add", "far", "--url", far, "--token-file", "-")
    refused = home(*words, stdin="x")
    assert (refused.code, "--plain-http" in refused.err, far in refused.err) == (2, True, True)
    asked = home("tenant", "list", ACLFLOW_URL=far, ACLFLOW_TOKEN="x")
    assert (asked.code, "ACLFLOW_PLAIN_HTTP=yes" in asked.err, far in asked.err) == (2, True, True)
    assert home(*words, "--plain-http", stdin="x").code == 0
    file: Path = home.file  # type: ignore[attr-defined]
    kept = json.loads(file.read_text())
    assert kept["contexts"]["far"]["plain_http"] is True
    assert home("context", "add", "near", "--url", "http://127.0.0.1:1", "--token-file", "-", stdin="x").code == 0
    kept = json.loads(file.read_text())
    assert "plain_http" not in kept["contexts"]["near"], "older versions read such a file"
    del kept["contexts"]["far"]["plain_http"]
    file.write_text(json.dumps(kept))
    before = home("tenant", "list", ACLFLOW_CONTEXT="far")
    assert (before.code, "ACLFLOW_PLAIN_HTTP=yes" in before.err) == (2, True), "as an older version has added it"


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("a b", "--url", "https://h", "--token-file", "-"), "t", "CONTEXT"),
        (("x" * 10_000, "--url", "https://h", "--token-file", "-"), "t", "CONTEXT"),
        (("a", "--url", "ftp://h", "--token-file", "-"), "t", "--url"),
        (("a", "--url", "https://h\a", "--token-file", "-"), "t", "--url"),
        (("a", "--url", "https://h", "--token-file", "-"), "", "--token-file"),
        (("a", "--url", "https://h", "--token-file", "-"), "two words", "--token-file"),
        (("a", "--url", "https://h", "--token-file", "-"), "שלום", "--token-file"),
        (("a", "--url", "https://h"), "t", "--token-file"),
    ],
)
def test_a_context_that_cannot_work_is_refused(home: Run, words: tuple[str, ...], stdin: str, said: str) -> None:
    ended = home("context", "add", *words, stdin=stdin)
    assert (ended.code, said in ended.err) == (2, True), ended
    assert home("context", "list", "--json").json() == []


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"[]", b"{}", b'{"contexts": {"a": {}}, "current": "a"}'])
def test_a_file_that_is_none_is_told(home: Run, content: bytes) -> None:
    file: Path = home.file  # type: ignore[attr-defined]
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    file.chmod(0o600)
    ended = home("context", "list")
    assert (ended.code, str(file) in ended.err) == (2, True), ended


def test_a_file_that_others_read_is_refused(home: Run) -> None:
    home("context", "add", "a", "--url", "https://h", "--token-file", "-", stdin="t")
    file: Path = home.file  # type: ignore[attr-defined]
    file.chmod(0o640)
    ended = home("tenant", "list")
    assert (ended.code, "chmod 600" in ended.err) == (2, True)


def test_the_service_of_a_cloud_is_reached_by_the_clouds_name(home: Run, service: Served, tmp_path: Path) -> None:
    """Who works with OpenStack names the service beside the cloud, and sets OS_CLOUD as for all other tools."""
    file = tmp_path / "config" / "openstack" / "clouds.yaml"
    file.parent.mkdir(parents=True)
    entry = {"auth": {"auth_url": "http://keystone"}, "aclflow": {"url": service.url, "token": service.token}}
    file.write_text(yaml.safe_dump({"clouds": {"prod": entry, "plain": {"auth": {}}}}))
    opened = home("token", "show", OS_CLOUD="prod")
    assert (opened.code, f"chmod 600 {file}" in opened.err) == (2, True)
    file.chmod(0o600)
    assert home("token", "show", OS_CLOUD="prod").out.startswith("admin: token ")
    elsewhere = home("token", "show", "--url", "http://127.0.0.1:1", OS_CLOUD="prod")
    assert (elsewhere.code, "not sent there" in elsewhere.err) == (2, True)
    for cloud in ("plain", "unknown"):
        nothing = home("token", "show", OS_CLOUD=cloud)
        assert (nothing.code, "aclflow context add" in nothing.err) == (3, True), nothing
        assert f"{file} says of no aclflow that belongs to cloud '{cloud}'" in nothing.err, nothing
    copy = tmp_path / "elsewhere.yaml"
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)
    file.unlink()
    assert home("token", "show", OS_CLOUD="prod", OS_CLIENT_CONFIG_FILE=str(copy)).code == 0
    home("context", "add", "own", "--url", "http://127.0.0.1:1", "--token-file", "-", stdin="t")
    assert home("token", "show", OS_CLOUD="prod", OS_CLIENT_CONFIG_FILE=str(copy)).code == 3, "a context goes first"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "clouds: 7", "clouds: {prod: {aclflow: 7}}", "clouds: {prod: {aclflow: {no: 1}}}", "a: [", "\x00"],
)
def test_a_cloud_that_cannot_be_read_is_told(home: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "config" / "openstack" / "clouds.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    file.chmod(0o600)
    ended = home("tenant", "list", OS_CLOUD="prod")
    assert (ended.code, str(file) in ended.err) == (2, True), ended


# --------------------------------------------------------------------------------------------------------------- tables


@pytest.fixture(scope="module")
def town(service: Served) -> Served:
    with service.client() as client:
        client.domains.create("north")
        client.domains.create("south")
        for name, domain in (("red", "north"), ("green", "south"), ("blue", "north")):
            client.tenants.create(name, domain=domain, name=f"{name}, and others")
    return service


def test_a_table_is_shown_as_it_is_asked_for(town: Served, run: Run) -> None:
    plain = run("tenant", "list").out.splitlines()
    assert plain[0].split("\t") == ["tenant", "name", "domain", "number", "prefixes"]
    assert run("tenant", "list", "-o", "wide").out.splitlines() == plain
    assert run("tenant", "list", "-o", "json").json() == run("tenant", "list", "--json").json()
    assert [each["id"] for each in yaml.safe_load(run("tenant", "list", "-o", "yaml").out)] == ["blue", "green", "red"]
    rows = [*csv.DictReader(run("tenant", "list", "-o", "csv").out.splitlines())]
    assert rows[0]["name"] == "blue, and others"


def test_rows_and_columns_are_chosen(town: Served, run: Run) -> None:
    def found(*words: str) -> list[str]:
        return run("tenant", "list", "--column", "tenant", *words).out.splitlines()[1:]

    assert found("--filter", "domain=north") == ["blue", "red"]
    assert found("--filter", "Domain!=north") == ["green"]
    assert found("--filter", "name~GREEN, and") == ["green"]
    assert found("--filter", "domain=north", "--filter", "tenant~re") == ["red"]
    assert found("--sort", "number") == ["red", "green", "blue"]
    assert found("--sort=-tenant") == ["red", "green", "blue"]
    two = run("tenant", "list", "--column", "number,tenant", "--sort", "-number", "-o", "json").json()
    assert [each["tenant"] for each in two] == ["blue", "green", "red"]
    assert [*two[0]] == ["number", "tenant"]
    whole = run("tenant", "list", "--filter", "domain=south", "--json").json()
    assert [each["id"] for each in whole] == ["green"], "documents are filtered as their rows are"
    for option, value in (("--column", "nonsense"), ("--sort", "nonsense"), ("--filter", "a=b"), ("--filter", "x")):
        wrong = run("tenant", "list", option, value)
        assert (wrong.code, option in wrong.err) == (2, True), wrong
    assert run("tenant", "list", "-o", "xml").code == 2


def test_every_table_is_printed_in_every_form(town: Served, run: Run) -> None:
    """Of a report one table is named, to be filtered, ordered and printed as CSV."""
    words = ("--tenant", "red", "--port", "tap1", "--mac", "0a:00:00:00:00:01", "--prefix", "192.0.2.1")
    assert run("tenant", "prefix", "add", "red", "192.0.2.0/24").code == 0
    assert run("domain", "endpoint", "add", "north", "web1", *words).code == 0
    report = run("domain", "show", "north", "-o", "csv")
    assert (report.code, "--table: the report has several tables, name one: hosts, endpoints" in report.err) == (
        2,
        True,
    )
    named = run("domain", "show", "north", "--table", "endpoints", "-c", "mac,endpoint", "-o", "csv")
    assert named.out.splitlines() == ["mac,endpoint", "0a:00:00:00:00:01,web1"]
    assert run("domain", "show", "north", "--table", "hosts", "-o", "json").json() == []
    chosen = run("domain", "show", "north", "--table", "endpoints", "--filter", "tenant=blue", "-o", "json")
    assert (chosen.code, chosen.json()) == (0, [])
    unknown = run("domain", "show", "north", "--table", "nonsense")
    assert (unknown.code, "hosts, endpoints, enforcers" in unknown.err) == (2, True)
    edge = run("plan", "edge", "--filter", "what~false", "-o", "csv")
    assert edge.out.startswith("what,value\n"), "a report of one table needs no name"
    assert yaml.safe_load(run("domain", "show", "north", "-o", "yaml").out)["endpoints"][0]["name"] == "web1"
    (endpoint,) = csv.DictReader(run("domain", "endpoint", "list", "north", "-o", "csv").out.splitlines())
    assert (endpoint["endpoint"], endpoint["prefixes"]) == ("web1", "192.0.2.1/32")
    assert run("domain", "host", "list", "north", "-o", "json").json() == []
    kept = csv.DictReader(run("events", "--filter", "about=green", "-o", "csv").out.splitlines())
    assert {event["about"] for event in kept} == {"green"}
    assert run("events", "--sort=-event", "-c", "event", "-o", "json").json()[0].keys() == {"event"}
    findings = run("acl", "check", "-", "-o", "csv", stdin=json.dumps({"rules": [WIDE, {**WIDE, "id": "again"}]}))
    assert {row["kind"] for row in csv.DictReader(findings.out.splitlines())} >= {"duplicate"}
    chosen = ("--filter", "kind=duplicate", "-c", "rule", "-o", "json")
    assert run("acl", "check", "-", *chosen, stdin=json.dumps({"rules": [WIDE, {**WIDE, "id": "again"}]})).json() == [
        {"rule": "again"}
    ]
    for command in (("acl", "draft", "list", "red"), ("acl", "unused", "red"), ("status",), ("devices",)):
        assert run(*command, "-o", "csv").out, command
    assert run("domain", "endpoint", "remove", "north", "web1").code == 0


def test_no_command_prints_a_table_of_its_own() -> None:
    """All tables take the same options."""
    own = set()
    for path in (ROOT / "orchestrator/cli").rglob("*.py"):
        if re.search(r"(?<![.\w])say_table\((?!self)", path.read_text()) and path.name != "terminal.py":
            own.add(path.stem)
    assert own == {"tables"}


def test_a_list_is_printed_in_every_form_and_written_to_files(town: Served, run: Run, tmp_path: Path) -> None:
    listed = json.dumps({"rules": [{"id": "web", "action": "deny", "protocol": "tcp"}]})
    assert run("acl", "apply", "red", "-", "--yes", stdin=listed).code == 0
    assert run("acl", "show", "red", "-o", "json").json()["rules"][0]["id"] == "web"
    assert run("acl", "show", "red", "-o", "csv").out.splitlines()[1].startswith("web,ingress,deny,tcp")
    assert yaml.safe_load(run("acl", "show", "red", "-o", "yaml").out)[0]["id"] == "web"
    assert run("acl", "show", "red", "-o", str(tmp_path / "list.json")).code == 0
    assert json.loads((tmp_path / "list.json").read_text())["taken_from"]["tenant"] == "red"
    assert run("acl", "rule", "list", "red", "--column", "id,action").out == "id\taction\nweb\tdeny\n"
    assert run("acl", "hits", "red", "--sort", "rate").code == 0
    assert run("acl", "hits", "red", "--sort=-packets", "--filter", "rule=web", "--column", "rule").out == "rule\nweb\n"

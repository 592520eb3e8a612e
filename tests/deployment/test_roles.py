"""What roles do with variables, read from their files: a yes or no that is given with `-e` comes as a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from cli.test_docs import Said, complaint
from deployment.image import ROOT

from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.control.auditsinks import Syslog
from orchestrator.hosts.switch import Wanted
from orchestrator.placement.choice import ENTRY_IDLE_S
from orchestrator.wire.domains import MAX_IDLE_MS

COLLECTION = ROOT / "ansible"
SPECS = sorted(COLLECTION.glob("roles/*/meta/argument_specs.yml"))
FILES = sorted(path for path in COLLECTION.rglob("*.yml") if path not in SPECS)
WITHIN = {"aclflow_bench_quick", "aclflow_release", "aclflow_removing"}
"""Those that playbooks and the service give."""


def _answers() -> set[str]:
    """The variables whose value is yes or no, as roles declare them."""
    declared = (entry for path in SPECS for entry in yaml.safe_load(path.read_text())["argument_specs"].values())
    options = [option for entry in declared for option in entry.get("options", {}).items()]
    return WITHIN | {name for name, option in options if option["type"] == "bool"}


def _taken_at_their_word(text: str) -> list[str]:
    """The lines in which such a variable is used and not read as yes or no: `false`, as a word, would be a yes."""
    answer = re.compile(rf"\b(?:{'|'.join(_answers())})\b(?!:)(?!(?: \| default\([^)]*\))? \| bool\b)")
    return [line.strip() for line in text.splitlines() if not line.lstrip().startswith("#") and answer.search(line)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_a_yes_or_no_is_read_as_one_wherever_it_is_used(path: Path) -> None:
    assert _taken_at_their_word(path.read_text()) == []


@pytest.mark.parametrize("path", sorted(COLLECTION.glob("roles/*/defaults/main.yml")), ids=lambda path: path.parts[-3])
def test_what_is_a_yes_or_no_by_default_is_declared_as_one(path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    assert {name for name, value in values.items() if isinstance(value, bool)} <= _answers()


def test_roles_keep_cache_entries_as_long_as_the_command_and_the_estimate_of_lifts() -> None:
    files = [path for path in FILES if "aclflow_max_idle_ms:" in path.read_text()]
    assert len(files) == 2
    assert {yaml.safe_load(path.read_text())["aclflow_max_idle_ms"] for path in files} == {MAX_IDLE_MS}
    assert Wanted("pop", "host1", "up0", ("tcp:127.0.0.1:6653",)).max_idle_ms == ENTRY_IDLE_S * 1000 == MAX_IDLE_MS


@pytest.mark.parametrize(
    "line",
    [
        "when: aclflow_apt",
        "when: aclflow_tls and aclflow_token | length > 0",
        "--tls: {{ aclflow_tls | ternary('yes', '') }}",
        "+ ([] if aclflow_unit_keeps else ['/var/lib/' ~ aclflow_unit])",
        "when: not (aclflow_removing | default(false))",
    ],
)
def test_a_word_that_is_believed_is_found(line: str) -> None:
    assert _taken_at_their_word(line) == [line]


def _called() -> Iterator[tuple[str, list[str]]]:
    """Each command of aclflow that a task calls: by which variable, and its words as far as they are written out."""
    for path in sorted((COLLECTION / "roles").glob("*/tasks/*.yml")):
        for called in re.finditer(r"(aclflow_(?:program|as_service)) \+\s+\[([^\]]*)\]", path.read_text()):
            items = [each.strip() for each in called[2].split(",")]
            yield called[1], [each[1:-1] if re.fullmatch("'[^']*'", each) else "?" for each in items]


def test_every_command_that_a_role_calls_can_be_called() -> None:
    said = [Said(by, tuple(words), whole=False) for by, words in _called()]
    assert len(said) > 12
    assert [f"{each.words}: {reason}" for each in said if (reason := complaint(each)) is not None] == []


def test_a_role_asks_the_store_itself_only_for_what_works_without_the_service() -> None:
    local = {("db", "upgrade"), ("db", "token"), ("certificates", "init"), ("certificates", "rotate"),
             ("certificates", "console")}  # fmt: skip
    assert {tuple(words[:2]) for by, words in _called() if by == "aclflow_as_service"} <= local


def test_the_service_sends_anchors_of_its_trail_where_it_cannot_change_them() -> None:
    role = COLLECTION / "roles/service"
    said = yaml.safe_load((role / "defaults/main.yml").read_text())["aclflow_audit_syslog"]
    assert str(Syslog(said)) == "unix:///run/systemd/journal/dev-log"
    assert "'ACLFLOW_AUDIT_SYSLOG': aclflow_audit_syslog" in (role / "tasks/main.yml").read_text()


def test_the_service_is_given_a_cloud_by_keys_that_it_knows() -> None:
    (said,) = re.findall(
        r"\{\{ (\{'kind'.*?\}) \|", (COLLECTION / "roles/service/tasks/cloud.yml").read_text(), re.DOTALL
    )
    keys = set(re.findall(r"'(\w+)':", said))
    assert keys == {"kind", "environment", "clouds_file", "group_tokens"}
    assert keys - {"kind"} <= {each.name for each in fields(HeatSettings)}


def test_a_fleet_is_asked_for_by_options_that_the_module_has() -> None:
    *_, task = yaml.safe_load((COLLECTION / "roles/service/tasks/fleet.yml").read_text())
    text = (COLLECTION / "plugins/modules/aclflow_fleet.py").read_text()
    (said,) = re.findall(r'DOCUMENTATION = r"""(.*?)"""', text, re.DOTALL)
    options = yaml.safe_load(said)["options"].keys()
    given = task["aclflow.cloud.aclflow_fleet"].keys() - {"url", "token", "authority", "plain_http"}
    assert {"domain", "size", "limits"} <= given <= options

"""`aclflow openstack` before it asks anybody: what it is told, and what it makes of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import aclflow

pytest.importorskip("openstack", reason="the extra `openstack` is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of openstacksdk, about its own options

GOOD = "kind: heat\nenvironment: {folder}/environment.yaml\ngroup_tokens: {folder}\ncloud: there\n"


def _file(folder: Path, text: str) -> str:
    (folder / "environment.yaml").write_text("parameters: {flavor: f}\n")
    (folder / "clouds.yaml").write_text(
        "clouds: {here: {auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: p, project_name: p}}}\n"
    )
    (folder / "cloud.yaml").write_text(text.format(folder=folder))
    return str(folder / "cloud.yaml")


def test_without_a_file_it_says_where_to_name_one() -> None:
    ended = aclflow("openstack", "check")
    assert ended.code == 2
    assert "ACLFLOW_CLOUD" in ended.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: lab\n", "not 'heat'"),
        ("kind: heat\n", "environment: must be set"),
        (GOOD + "colour: red\n", "colour: is no setting"),
        ("[", "not YAML"),
    ],
)
def test_a_wrong_file_is_said_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(text.replace("{folder}", str(tmp_path)))
    ended = aclflow("openstack", "check", "--cloud", str(file))
    assert ended.code == 2
    assert words in ended.err
    assert str(file) in ended.err


def test_a_cloud_that_clouds_yaml_lacks_is_said(tmp_path: Path) -> None:
    text = GOOD + "clouds_file: {folder}/clouds.yaml\n"
    ended = aclflow("openstack", "alarms", "show", "pop1", "--cloud", _file(tmp_path, text))
    assert ended.code == 2
    assert "there" in ended.err


def test_one_that_does_not_answer_is_said_to_be_away(tmp_path: Path) -> None:
    text = GOOD.replace("there", "here") + "clouds_file: {folder}/clouds.yaml\nrequest_s: 1\n"
    ended = aclflow("openstack", "alarms", "show", "pop1", environment={"ACLFLOW_CLOUD": _file(tmp_path, text)})
    assert ended.code == 3
    assert "got no answer" in ended.err


def test_sizes_that_cannot_be_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    ended = aclflow("openstack", "alarms", "create", "pop1", "--fewest", "3", "--most", "2")
    assert ended.code == 2
    assert "between 3 and 2 VNFs is no range" in ended.err

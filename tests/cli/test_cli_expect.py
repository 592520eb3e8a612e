"""Stories of `aclflow acl test` on files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import aclflow

LIST = {
    "rules": [
        {"id": "ssh", "action": "permit", "protocol": "tcp", "source": "203.0.113.0/24", "destination_ports": 22},
        {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.10", "destination_ports": 443},
    ]
}
EXPECTED = """own is 198.51.100.0/24
alice is 192.0.2.10
web1 is 198.51.100.10
alice reaches web1:443
nobody reaches web1:22 from outside
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A list and what is expected of it."""
    (tmp_path / "list.json").write_text(json.dumps(LIST))
    (tmp_path / "shop.expect").write_text(EXPECTED)
    return str(tmp_path / "list.json"), str(tmp_path / "shop.expect")


def test_a_broken_expectation_is_shown_with_a_packet(files: tuple[str, str]) -> None:
    ended = aclflow("acl", "test", files[0], "--expect", files[1])
    assert ended.code == 1
    assert "kept    alice reaches web1:443" in ended.out
    assert "BROKEN  nobody reaches web1:22 from outside" in ended.out
    assert f"{files[1]}, line 5: tcp 203.0.113.0:49152 > 198.51.100.10:22 syn" in ended.out
    assert "ingress: permit, by rule 'ssh'" in ended.out
    assert "1 of 2 expectations are kept" in ended.err


def test_kept_expectations_end_with_0(files: tuple[str, str]) -> None:
    Path(files[1]).write_text(EXPECTED.replace("outside", "outside except 203.0.113.0/24"))
    ended = aclflow("acl", "test", files[0], "-e", files[1])
    assert (ended.code, "2 of 2" in ended.err) == (0, True), ended


def test_programs_get_json_and_junit(files: tuple[str, str], tmp_path: Path) -> None:
    ended = aclflow("acl", "test", files[0], "-e", files[1], "--json", "--junit", str(tmp_path / "report.xml"))
    assert ended.code == 1
    found = ended.json()
    assert (found["broken"], [each["kept"] for each in found["expectations"]]) == (1, [True, False])
    assert found["expectations"][1]["packet"]["destination_port"] == 22
    assert found["expectations"][1]["decided"] == [{"direction": "ingress", "action": "permit", "rule": "ssh"}]
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "0")
    kept, broken = root.findall("testsuite/testcase")
    assert (kept.get("name"), kept.find("failure")) == ("alice reaches web1:443", None)
    assert (broken.get("file"), broken.get("line")) == (files[1], "5")
    failure = broken.find("failure")
    assert failure is not None
    assert "203.0.113.0:49152" in (failure.text or "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("alice reaches web1:443\n", "which prefixes are yours"),
        ("own is 198.51.100.0/24\nalice reaches web1:443\n", "line 2: 'alice' is nobody that is known"),
        ("own is 198.51.100.0/24\nal ice\n", "line 2: 'al ice' is no expectation"),
        ("", "it expects nothing"),
        ("\x00", "a byte of zero is no text"),
    ],
)
def test_a_file_that_cannot_be_read_ends_with_2(files: tuple[str, str], content: str, said: str) -> None:
    Path(files[1]).write_text(content)
    ended = aclflow("acl", "test", files[0], "-e", files[1])
    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_a_file_that_is_not_there_ends_with_3(files: tuple[str, str]) -> None:
    assert aclflow("acl", "test", files[0], "-e", "/nowhere").code == 3


def test_own_prefixes_may_come_from_the_command_line(files: tuple[str, str]) -> None:
    Path(files[1]).write_text("192.0.2.10 reaches 198.51.100.10:443\n")
    assert aclflow("acl", "test", files[0], "-e", files[1], "--own", "198.51.100.0/24").code == 0

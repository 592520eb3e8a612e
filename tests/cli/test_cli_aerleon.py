"""`aclflow acl import` of a policy whose names and includes are in folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import aclflow

POLICY = """header {
  target:: cisco edge
}
#include 'inc/abuse.inc'
term web {
  destination-address:: WEB
  protocol:: tcp
  action:: accept
}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    for name, text in {
        "edge.pol": POLICY,
        "policies/inc/abuse.inc": "term abuse {\n  source-address:: ABUSE\n  action:: deny\n}\n",
        "policies/inc/notes.txt": "not an include",
        "def/sites.net": "WEB = 198.51.100.16/28\nABUSE = 192.0.2.128/25\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_definitions_and_includes_come_from_folders(policy: Path) -> None:
    folders = ("--definitions", str(policy / "def"), "--includes", str(policy / "policies"))
    ended = aclflow("acl", "import", str(policy / "edge.pol"), *folders)
    assert ended.code == 0, ended.err
    assert [rule["id"] for rule in ended.json()["rules"]] == ["abuse", "web"]
    without = aclflow("acl", "import", str(policy / "edge.pol"), *folders[:2])
    assert (without.code, "inc/abuse.inc was not given" in without.err) == (2, True)


def test_folders_that_cannot_be_read_are_named(policy: Path) -> None:
    ended = aclflow("acl", "import", str(policy / "edge.pol"), "--definitions", str(policy / "none"))
    assert (ended.code, "--definitions: " in ended.err) == (3, True)
    (policy / "def" / "bad.net").write_bytes(b"\xff\xfe")
    ended = aclflow("acl", "import", str(policy / "edge.pol"), "--definitions", str(policy / "def"))
    assert (ended.code, "bad.net is not UTF-8 text" in ended.err) == (2, True)

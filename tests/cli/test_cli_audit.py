"""`aclflow audit`: list, show, export, and a verification that names the place of what was touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Run
from command_line import aclflow
from served import Served


@pytest.fixture
def trail(service: Served, run: Run, tmp_path: Path) -> Path:
    """An export of a few changes, the newest of them anchored."""
    for name in ("one", "two", "three"):
        run("domain", "create", f"{name}-{tmp_path.name}")
    service.service.parts.auditor.look()
    file = tmp_path / "trail.jsonl"
    assert run("audit", "export", str(file)).code == 0
    return file


def test_entries_are_listed_filtered_and_shown(service: Served, run: Run, trail: Path) -> None:
    listed = run("audit", "list", "--kind", "domain.created", "--last", "2", "--json")
    entries = json.loads(listed.out)
    assert [entry["kind"] for entry in entries] == ["domain.created"] * 2
    assert entries[0]["id"] < entries[1]["id"]
    newest = entries[-1]
    assert newest["subject"] in run("audit", "list", "-o", "csv", "--column", "who,on-what").out
    shown = run("audit", "show", str(newest["id"]))
    assert shown.code == 0
    assert newest["hash"] in shown.out
    assert "admin:1 from 127.0.0.1" in shown.out
    assert run("audit", "list", "--who", "member:99", "--json").out.strip() == "[]"
    assert run("audit", "show", "999999").code == 1


def test_a_trail_that_nobody_touched_is_verified(service: Served, run: Run, trail: Path) -> None:
    key = service.settings.audit_dir / "key.pub"
    ended = run("audit", "verify", "--key", str(key))
    assert ended.code == 0, ended.err
    assert "no fault" in ended.out
    assert "--anchors" in ended.err
    offline = aclflow("audit", "verify", str(trail), "--anchors", str(trail), "--key", str(key))
    assert (offline.code, offline.err) == (0, "")
    assert "whose key" in aclflow("audit", "verify", str(trail)).err


@pytest.mark.parametrize(
    ("touch", "words"),
    [
        (lambda lines: [*lines[:-1], lines[-1].replace('"admin:1"', '"admin:2"')], "was changed"),
        (lambda lines: [*lines[:-2], lines[-1]], "is missing"),
        (lambda lines: lines[:-1], "the end is cut"),
        (lambda lines: [*lines[:-2], lines[-1], lines[-2]], "moved"),
    ],
)
def test_what_was_touched_is_named_with_its_place(trail: Path, touch: object, words: str) -> None:
    lines = trail.read_text().splitlines(keepends=True)
    number = json.loads(lines[-1])["entry"]["number"]
    trail.write_text("".join(touch(lines)))  # type: ignore[operator]
    ended = aclflow("audit", "verify", str(trail))
    assert ended.code == 1
    assert words in ended.err
    assert any(f"entry {place}:" in ended.err for place in (number - 1, number))


def test_a_file_that_is_no_trail_is_refused_with_its_line(trail: Path, tmp_path: Path) -> None:
    with trail.open("a") as file:
        file.write('{"nothing": 1}\n')
    ended = aclflow("audit", "verify", str(trail))
    assert (ended.code, "neither an entry nor an anchor" in ended.err) == (2, True)
    assert aclflow("audit", "verify", str(tmp_path / "none")).code == 3
    assert "hexadecimal" in aclflow("audit", "verify", str(trail), "--key", "xyz").err

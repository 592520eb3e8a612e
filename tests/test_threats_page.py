"""The page on threats names tests and paths: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
TABLES = PAGE.partition("## The switch's cache")[0]
"""What follows are figures of a suite."""
ROWS = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| attacker"))]
NAMED = re.compile(r"`([^`\s]+)`")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def defined() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))


DEFINED = set(re.findall(r"^ *def (test_\w+)", defined(), re.MULTILINE))


def test_each_row_has_a_mechanism_and_a_test() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(cells(row)) == 4, row
        assert all(cells(row)), row


def test_each_test_that_is_named_exists() -> None:
    named = {name for name in NAMED.findall(PAGE) if name.startswith("test_") and not name.endswith(".py")}
    assert len(named) > 30
    assert not named - DEFINED


def test_each_path_that_is_named_exists() -> None:
    paths = {name for name in NAMED.findall(PAGE) if re.fullmatch(r"[\w./-]+\.(py|h|c|md|cloud-config)", name)}
    assert len(paths) > 20
    known = {str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.*")}
    assert not {path for path in paths if not any(each == path or each.endswith(f"/{path}") for each in known)}


def test_each_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([\w.-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target

"""The page on threats names tests and paths: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


TESTS = {
    str(path.relative_to(ROOT / "tests")): set(re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
    for path in (ROOT / "tests").rglob("*.py")
}


def test_each_test_is_in_the_file_that_is_named_with_it() -> None:
    """Where a cell names files, one of them has or takes up each test of the cell."""
    for row in ROWS:
        named = NAMED.findall(cells(row)[3])
        files = [name for name in named if name.endswith(".py")]
        assert all(name in TESTS for name in files), row
        found = {test for name in files for test in TESTS[name]}
        functions = {name for name in named if name.startswith("test_") and not name.endswith(".py")}
        assert not files or functions <= found, (row, functions - found)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    tests = {name for name in named if re.fullmatch(r"test_\w+", name)}
    files = {name for name in named if re.fullmatch(r"(?:\w+/)+test_\w+\.py", name)}
    assert tests - DEFINED == set()
    assert {name for name in files if name.removeprefix("tests/") not in TESTS} == set()


SUFFIXES = (".py", ".h", ".json", ".cloud-config")
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").replace("\\n", "\n")
    for pattern in ("orchestrator/**/*.py", "orchestrator/**/*.h", "api/**/*.py", "heat-templates/*.cloud-config")
    for path in ROOT.glob(pattern)
}


def is_named(path: str, name: str) -> bool:
    """Whether a path is what the page calls it, without its first folders."""
    return path == name or path.endswith(f"/{name}")


def has_words(text: str, name: str) -> bool:
    return all(re.search(rf"(?<!\w){word}\b", text) for word in name.split("."))


def test_each_mechanism_that_is_named_exists() -> None:
    """A class, function or setting that a mechanism names is a word of the files that are named with it."""
    for row in ROWS:
        named = NAMED.findall(cells(row)[2])
        words = [name for name in named if re.fullmatch(r"[A-Za-z_][\w.]*", name) and not name.endswith(SUFFIXES)]
        files = [
            text for name in named if name.endswith(SUFFIXES) for path, text in SOURCES.items() if is_named(path, name)
        ]
        for name in words:
            assert any(has_words(text, name) for text in files or SOURCES.values()), (name, row)


def test_each_path_that_is_named_exists() -> None:
    paths = {name for name in NAMED.findall(PAGE) if re.fullmatch(r"[\w./-]+\.(py|h|c|md|cloud-config)", name)}
    assert len(paths) > 20
    known = {str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.*")}
    assert not {path for path in paths if not any(each == path or each.endswith(f"/{path}") for each in known)}


def test_each_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([\w.-]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


NETWORK = re.compile(
    r"^\s*(?:import|from) (?:socket|http\.client|urllib\.request|requests|httpx|openstack|heatclient|psycopg|subprocess"
    r"|asyncssh|smtplib)\b"
    r"|\bClient\(|\bask_all\b|\b(?:open_connection|create_connection|create_datagram_endpoint)\(",
    re.MULTILINE,
)
BY_SETTINGS = {
    "orchestrator/control/packets/sinks.py", "orchestrator/control/auditsinks.py",
    "orchestrator/control/onboarding.py",  # its own name alone
    "api/console/sessions.py",  # the console asks the service
    "api/console/pages/firewalls.py",  # and members of firewall clusters
    "orchestrator/cloud/heat/openstack.py", "orchestrator/store/sql/prepared.py",
    "orchestrator/store/sql/livingservices.py", "orchestrator/store/sql/notices.py",
    "orchestrator/store/sql/faults.py", "orchestrator/store/transaction.py",
}  # fmt: skip
BY_ADMINISTRATORS = {"orchestrator/hosts/installer.py", "orchestrator/hosts/ovs.py"}


def test_what_reaches_the_network_is_on_the_page() -> None:
    """A module of the service that can open a connection is one of those that the page tells of, by whose word."""
    service = [
        *ROOT.glob("api/**/*.py"),
        *(path for part in ("control", "store", "cloud", "hosts", "identity")
          for path in ROOT.glob(f"orchestrator/{part}/**/*.py")),
    ]  # fmt: skip
    found = {str(path.relative_to(ROOT)) for path in service if NETWORK.search(path.read_text(encoding="utf-8"))}
    known = BY_SETTINGS | BY_ADMINISTRATORS
    assert found - known == set(), "say on docs/threats.md by whose word it connects"
    assert known - found == set()

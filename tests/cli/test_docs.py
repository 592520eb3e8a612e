"""What the pages say to type can be typed: calls of aclflow parse, targets of make, settings and links are there."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from orchestrator.cli.branches.shape import Branch, Leaf
from orchestrator.cli.lazy import load
from orchestrator.cli.tree import TREE
from orchestrator.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "heat-templates", "vnf-images", "ansible", "packaging", "orchestrator", "api", "tests")
PAGES = sorted([ROOT / "README.md", *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
OTHERS = sorted(
    path
    for folder in ("orchestrator", "api", "heat-templates", "ansible", "packaging")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".yaml", ".yml"}
)
"""Files whose comments, descriptions and errors name commands, too."""

_FENCE = re.compile(r"(?ms)^[ ]*```[^\n]*\n(.*?)^[ ]*```")
_INLINE = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"(?:^|[\s(])(?:\S*/)?aclflow (?=--?[a-z]|[a-z]+(?:-[a-z]+)*(?:\s|$))([^`]*)")
_DRAWN = re.compile(r"[─▶◀│┐┘└┌═]")
_SAYING = re.compile(r"\s(#|\.\.\.)\s.*|\s{3,}.*")
"""What a line of a block says about the call in front of it."""
_SETTING = re.compile(r"\bACLFLOW_[A-Z_]+\b")
_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&", ")"}
_ELLIPSES = {"...", "..", "…"}


@dataclass(frozen=True, slots=True)
class Said:
    """A call of aclflow that a page shows."""

    page: Path
    words: tuple[str, ...]
    whole: bool
    """Nothing is left out: it is a line to be typed, not the name of a command in a sentence."""

    def __str__(self) -> str:
        return f"{self.page.name}: aclflow {' '.join(self.words)}"


def calls(page: Path) -> Iterator[Said]:
    """All that a page shows, in blocks of code and within sentences."""
    text = page.read_text(encoding="utf-8")
    for block in _FENCE.findall(text):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            typed = _SAYING.sub("", line.strip())
            if (found := _CALL.search(typed)) and not _DRAWN.search(line):
                yield _said(page, found[1], whole=typed.lstrip("$ ").startswith("aclflow "))
    for code in _INLINE.findall(_FENCE.sub("", text)):
        if found := _CALL.match(code):
            yield _said(page, found[1], whole=False)


def mentions(path: Path) -> Iterator[Said]:
    """What a file that is no page shows in backticks, a line at a time; what an f-string fills in is left out."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", path.read_text(encoding="utf-8")):
        if found := _CALL.match(code):
            yield _said(path, re.sub(r"\{[^}]*\}", " ", found[1]), whole=False)


def _said(page: Path, text: str, *, whole: bool) -> Said:
    """A call as words, without the brackets around what may be left out, up to where the shell has it end."""
    for quote in "'\"":
        if text.count(quote) % 2:  # the call is itself within quotes, which end here
            text = text.rpartition(quote)[0]
    lexer = shlex.shlex(re.sub(r"\[(?=-)|\]", "", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(itertools.takewhile(lambda word: word not in _ENDS, lexer))
    kept = tuple(word for word in words if word not in _ELLIPSES)
    return Said(page, kept, whole and len(kept) == len(words))


def complaint(said: Said) -> str | None:
    """Why a call cannot be made as it is shown, or nothing."""
    node: Branch | Leaf = TREE
    words = list(said.words)
    while isinstance(node, Branch) and words and not words[0].startswith("-"):
        word = words.pop(0)
        child = next((each for each in node.children if each.name == word), None)
        if child is None:
            return f"there is no command '{word}' in '{node.name}'"
        node = child
    if isinstance(node, Branch):
        return f"'{node.name}' has commands of its own" if said.whole and not words else None
    command = load(node)
    while isinstance(command, TyperGroup) and words:
        name = words.pop(0)
        found = command.get_command(typer.Context(command), name)
        if found is None:
            return f"there is no command '{name}' in '{node.name}'"
        command = found
    return _parsed(command, words, whole=said.whole)


def _parsed(command: Any, words: list[str], *, whole: bool) -> str | None:
    try:
        values, rest, _ = command.make_parser(typer.Context(command)).parse_args(words)
    except TyperException as error:
        return str(error) if whole or "requires" not in str(error) else None
    if rest:
        return f"too many arguments: {rest}"
    missing = [each.name for each in command.params if each.required and not values.get(each.name)]
    return f"without {missing}" if missing and whole else None


def test_what_the_pages_say_to_type_can_be_typed() -> None:
    said = [*itertools.chain.from_iterable(map(calls, PAGES))]
    assert [f"{each}: {reason}" for each in said if (reason := complaint(each)) is not None] == []
    assert len(said) > 150


def test_commands_that_errors_and_comments_name_are_there() -> None:
    said = [*itertools.chain.from_iterable(map(mentions, OTHERS))]
    assert [f"{each}: {reason}" for each in said if (reason := complaint(each)) is not None] == []
    assert len(said) > 50


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("$ aclflow acl aply list.json -t shop", "there is no command 'aply' in 'acl'"),
        ("$ aclflow db backup before.backup --with-out", "No such option: --with-out"),
        ("$ aclflow db backup one two", "too many arguments: ['two']"),
        ("$ aclflow db backup", "without ['file']"),
        ("$ A=b /opt/aclflow/bin/aclflow db keep", "there is no command 'keep' in 'db'"),
        ('x --token "$(aclflow domain invited pop1)" y', "there is no command 'invited' in 'domain'"),
        ("$ aclflow db backup ...", None),
        ("$ aclflow db backup before.backup     # writes it", None),
        ("$ aclflow db backup \\\n    before.backup | tee log", None),
        ("install -g aclflow aclflow.yaml /etc", None),
    ],
)
def test_a_call_that_cannot_be_made_is_found(tmp_path: Path, line: str, reason: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```\n{line}\n```\n")
    assert [complaint(said) for said in calls(page)] in ([reason], [] if reason is None else None)


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    named = {
        (page.name, target)
        for page in PAGES
        for target in re.findall(
            r"(?m)(?:^\$ |^|`)make ([a-z-]+)(?=$|\s{2}|`| [A-Z#])", page.read_text(encoding="utf-8")
        )
    }
    assert {(page, target) for page, target in named if target not in targets} == set()
    assert len(named) > 10


def test_settings_that_pages_name_are_read_by_something() -> None:
    suffixes = {".py", ".service", ".yml", ".j2", ".bash", ""}
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    read = {f"ACLFLOW_{name.upper()}" for name in Settings.__dataclass_fields__}
    for path in (ROOT / "Makefile", *filter(Path.is_file, files)):
        read.update(_SETTING.findall(path.read_text(encoding="utf-8", errors="ignore")))
    named = {(page.name, name) for page in PAGES for name in _SETTING.findall(page.read_text(encoding="utf-8"))}
    assert {(page, name) for page, name in named if name not in read} == set()
    assert len(named) > 20


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on GitHub."""
    headings = re.findall(r"(?m)^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    broken, seen = [], 0
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            seen += 1
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []
    assert seen > 100


def test_the_map_of_documents_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    named = set(re.findall(r"\]\(([a-z-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert pages == named

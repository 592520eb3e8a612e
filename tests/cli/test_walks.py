"""The walks of `docs/walks.md`, typed as they stand there: each block of commands prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from served import Served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(walk|file (?P<name>\S+))\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_WALK = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_STATUS = re.compile(r"\(exit status (\d)\)")
GIVEN = {"router.cfg": ROOT / "orchestrator" / "lab" / "policies" / "shop.cisco"}


@dataclass(frozen=True)
class Typed:
    """A command and what the page shows of its output."""

    words: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def status(self) -> int:
        found = _STATUS.fullmatch(self.shown[-1]) if self.shown else None
        return int(found[1]) if found else 0


def commands(block: str) -> Iterator[Typed]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *shown = part.splitlines()
        yield Typed(tuple(shlex.split(line)), tuple(shown))


def is_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether lines are printed as the page shows them; a line of dots stands for any number of lines."""
    if not shown:
        return not printed
    first, rest = shown[0], shown[1:]
    if first == "...":
        return any(is_shown(rest, printed[skipped:]) for skipped in range(len(printed) + 1))
    if not printed:
        return False
    pattern = ".*".join(map(re.escape, " ".join(first.split()).split("...")))
    return re.fullmatch(pattern, " ".join(printed[0].split())) is not None and is_shown(rest, printed[1:])


def check(typed: Typed, ended: Ended) -> None:
    printed = [line for line in (*ended.out.splitlines(), *ended.err.splitlines()) if line.strip()]
    shown = [line for line in typed.shown if not _STATUS.fullmatch(line)]
    where = f"$ {shlex.join(typed.words)}\n{ended.out}{ended.err}(exit status {ended.code})"
    assert ended.code == typed.status, where
    assert is_shown(shown, printed), where


def test_the_page_walks_with_a_newcomer_an_operator_and_a_tenant() -> None:
    titles = [found["title"] for found in _WALK.finditer(PAGE)]
    assert [title for title in titles if "browser" not in title] == ["A newcomer", "An operator", "A tenant"]


def test_what_the_page_shows_is_what_is_seen(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in GIVEN.items():
        (tmp_path / name).write_bytes(source.read_bytes())
    monkeypatch.chdir(tmp_path)
    environment = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
    walked = 0
    for block in _BLOCK.finditer(PAGE):
        if block["name"]:
            Path(block["name"]).write_text(block["text"])
            continue
        for typed in commands(block["text"]):
            assert typed.words[0] == "aclflow"
            check(typed, aclflow(*typed.words[1:], environment=environment))
            walked += 1
    assert walked > 20
    assert os.path.exists("groups/web1.aws-sg")


def test_a_page_that_shows_something_else_is_noticed() -> None:
    typed = Typed(("aclflow",), ("kept  ...", "...", "2 of 3 are kept"))
    for out in ("kept  a\n2 of 3 are kept\n", "kept a\nmore\nand more\n2 of 3 are kept\n"):
        check(typed, Ended(0, out, ""))
    for ended in (
        Ended(1, "kept  a\n2 of 3 are kept\n", ""),
        Ended(0, "kept  a\n3 of 3 are kept\n", ""),
        Ended(0, "lost  a\n2 of 3 are kept\n", ""),
        Ended(0, "kept  a\n2 of 3 are kept\nmore\n", ""),
    ):
        with pytest.raises(AssertionError):
            check(typed, ended)

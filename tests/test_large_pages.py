"""Memory gathered in large pages stays what it is, and is left alone where much of it is free or that is asked."""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import largepages
from orchestrator.largepages import LARGE_PAGE, Growth, gather

_LARGE_PAGES = 4
_CONTENT = bytes(range(256)) * (_LARGE_PAGES * LARGE_PAGE // 256)


class Room:
    """Memory of four large pages, which is all that a process is said to hold."""

    def __init__(self, mappings: Path) -> None:
        self._memory = mmap.mmap(-1, len(_CONTENT) + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._start = -(-at // LARGE_PAGE) * LARGE_PAGE
        whole = slice(self._start - at, self._start - at + len(_CONTENT))
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.octets = memoryview(self._memory)[whole]
        mappings.write_text(f"{self._start:x}-{self._start + len(_CONTENT):x} rw-p 00000000 00:00 0\n")

    def write(self, share: float = 1.0) -> None:
        """Hold so much of every large page, and be what any memory of a process is."""
        held = int(share * LARGE_PAGE)
        for start in range(0, len(_CONTENT), LARGE_PAGE):
            self.octets[start : start + held] = _CONTENT[start : start + held]
        self._memory.madvise(mmap.MADV_HUGEPAGE)

    @property
    def in_large_pages(self) -> int:
        """Bytes in large pages of what the system keeps as one with it."""
        found, within = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if bounds:
                within = int(bounds[1], 16) <= self._start < int(bounds[2], 16)
            elif within and line.startswith("AnonHugePages:"):
                found += int(line.split()[1]) << 10
        return found


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(largepages, "_MAPPINGS", tmp_path / "maps")
    return Room(tmp_path / "maps")


def test_memory_that_is_held_is_gathered_and_stays_what_it_is(room: Room) -> None:
    room.write()
    gathered = gather()
    assert room.octets == _CONTENT
    if not gathered:
        pytest.skip("this system makes no large pages of memory that is in use, or has none left")
    assert gathered <= len(_CONTENT)
    assert room.in_large_pages >= gathered


def test_memory_that_is_mostly_free_is_left_alone(room: Room) -> None:
    room.write(share=0.5)
    assert gather() == 0


def test_what_is_not_there_any_more_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mappings = tmp_path / "maps"
    mappings.write_text(f"{LARGE_PAGE:x}-{2 * LARGE_PAGE:x} rw-p 00000000 00:00 0\n")
    monkeypatch.setattr(largepages, "_MAPPINGS", mappings)
    assert gather() == 0


def test_nothing_is_gathered_where_large_pages_are_forbidden(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "enabled"
    policy.write_text("always madvise [never]\n")
    monkeypatch.setattr(largepages, "_POLICY", policy)
    room.write()
    assert gather() == 0


def test_nothing_is_gathered_where_the_system_does_not_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(largepages, "_POLICY", tmp_path / "none")
    assert gather() == 0


_LOOKS = st.lists(st.sampled_from((0, 255, 256, 4095, 4096, 6000)), max_size=40)
"""How many pages came from look to look."""


@given(came=_LOOKS)
def test_it_is_due_when_much_has_come_and_no_more_is_coming(came: list[int]) -> None:
    growth, pages, gathered, quiet = Growth(), 0, 0, 0
    for each in came:
        pages += each
        quiet = quiet + 1 if each < 256 else 0
        due = growth.is_due(pages)
        assert due == (quiet >= 4 and pages - gathered >= 4096)
        if due:
            growth.note_gathered(pages)
            gathered = pages

"""Gather a process's memory in large pages.

A changed rule touches a little of everything that a service holds, and much of what that takes is the processor finding
out where it lies: it looks a page of 4 KiB up in tables, and there are tens of thousands of them. Pages of 2 MiB are
few enough to be remembered. Linux makes them of itself where it was asked to before the memory was used, which the
allocators of Python and C do not do; so it is asked afterwards (MADV_COLLAPSE, Linux 6.1), where most of a large page
is held anyhow.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LARGE_PAGE = 2 << 20
"""Bytes of a large page, and what it is aligned to."""

_PAGES = LARGE_PAGE // mmap.PAGESIZE
_COLLAPSE = 25
"""MADV_COLLAPSE, which the standard library has no name for."""
_HELD_SHARE = 0.9
"""So much of a large page must be held already: the rest comes to be held with it."""

_LOOK_EVERY_S = 0.1
_FRESH_PAGES = 4096
"""After 16 MiB that came to be held it is worth looking through everything."""
_QUIET_LOOKS, _QUIET_PAGES = 4, 256
"""A process is quiet when at so many looks one after the other fewer pages than these had come."""

_MAPPINGS = Path("/proc/self/maps")
_POLICY = Path("/sys/kernel/mm/transparent_hugepage/enabled")

_libc = ctypes.CDLL(None)


def gather() -> int:
    """Have what this process holds lie in large pages; how many bytes do now.

    Takes a third of a millisecond a page that is not large yet, in which other threads go on. Nothing where the system
    cannot do it, or whoever runs it has forbidden large pages.
    """
    if not _is_allowed():
        return 0
    return sum(LARGE_PAGE for start in _ranges() if _is_held(start) and _collapse_page(start))


def keep_gathered() -> None:
    """Gather whenever much memory was allocated, in a thread of its own."""
    threading.Thread(target=_keep_gathering, name="large-pages", daemon=True).start()


@dataclass(slots=True)
class Growth:
    """Decides when to gather, by the pages allocated since the process began."""

    _gathered: int = 0
    _before: int = 0
    _quiet: int = 0

    def is_due(self, pages: int) -> bool:
        """Return whether many pages came and no more are coming.

        Asked at regular looks.
        """
        self._quiet = self._quiet + 1 if pages - self._before < _QUIET_PAGES else 0
        self._before = pages
        return self._quiet >= _QUIET_LOOKS and pages - self._gathered >= _FRESH_PAGES

    def note_gathered(self, pages: int) -> None:
        """Note that pages were gathered."""
        self._gathered = self._before = pages


def _keep_gathering() -> None:
    growth, pause = Growth(), threading.Event()
    while not pause.wait(_LOOK_EVERY_S):
        if growth.is_due(_count_page_faults()):
            gather()
            growth.note_gathered(_count_page_faults())


def _count_page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _is_allowed() -> bool:
    with suppress(OSError):
        return "[never]" not in _POLICY.read_text()
    return False


def _ranges() -> Iterator[int]:
    """Yield places for large pages in our own writable memory without a file."""
    for line in _MAPPINGS.read_text().splitlines():
        bounds, rights, _, _, file, *name = line.split(maxsplit=5)
        if rights == "rw-p" and file == "0" and not (name and name[0].startswith(("[stack", "[v"))):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            yield from range(-(-start // LARGE_PAGE) * LARGE_PAGE, end - LARGE_PAGE + 1, LARGE_PAGE)


def _is_held(start: int) -> bool:
    """Return whether most of a range is in memory.

    Another thread may have given it back meanwhile.
    """
    held = (ctypes.c_ubyte * _PAGES)()
    failed = _libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(LARGE_PAGE), held)
    return not failed and bytes(held).count(1) >= _HELD_SHARE * _PAGES


def _collapse_page(start: int) -> bool:
    return not _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(LARGE_PAGE), _COLLAPSE)

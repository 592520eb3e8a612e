"""Network namespaces by name, and doing things inside them.

Entering a namespace changes the calling thread only, so every call inside one runs in a thread of its own that ends
with it. A socket or a process made there stays there.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pyroute2 import netns

from orchestrator.errors import Missing, NotFound

Result = TypeVar("Result")

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def need_root() -> None:
    """Raises Missing for anybody else: namespaces and switches are root's."""
    if os.geteuid():
        raise Missing("the lab makes network namespaces and switches: run it as root")


def create(name: str) -> None:
    """Make a namespace. It holds nothing but a loopback interface that is down.

    In a thread, not in a forked child as `netns.create` would: a fork beside running threads may never come back.
    """

    def make_here() -> None:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        netns.attach(name, "thread-self")

    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(make_here).result()


def remove(name: str) -> None:
    """Remove a namespace; its interfaces go once nothing runs inside.

    A missing one is no error.
    """
    with suppress(FileNotFoundError):
        netns.remove(name)


def with_prefix(prefix: str) -> tuple[str, ...]:
    """The names of all namespaces that begin so, sorted."""
    return tuple(sorted(name for name in netns.listnetns() if name.startswith(prefix)))


def inside(name: str, call: Callable[[], Result]) -> Result:
    """Call a function inside a namespace and return its result.

    Raises NotFound where there is none of that name.
    """

    def call_inside() -> Result:
        enter(name)
        return call()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(call_inside).result()


def enter(name: str) -> None:
    """Move the calling thread into a namespace for good. Raises NotFound."""
    try:
        netns.setns(name, flags=0)
    except FileNotFoundError:
        raise NotFound(f"there is no network namespace '{name}'") from None


def set_kernel(settings: Mapping[str, str]) -> None:
    """Write kernel settings (``net/ipv6/conf/all/forwarding``) of the namespace this is called in."""
    for name, value in settings.items():
        Path("/proc/sys", name).write_text(value)

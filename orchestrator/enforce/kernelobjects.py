"""Settings of the kernel, and netlink's errors as ours, for keepers of the kernel's objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.errors import Missing, Refused, Unreachable


def set_kernel(path: Path, value: str, *, place: str) -> bool:
    """Give a setting of the kernel a value; return whether it had another.

    Raises Missing with the place.
    """
    try:
        if path.read_text(encoding="ascii").strip() == value:
            return False
        path.write_text(value, encoding="ascii")
    except FileNotFoundError:  # a kernel without that IP version
        return False
    except OSError as error:
        raise Missing(f"the kernel's setting cannot be changed: {error.strerror}", place=place) from None
    return True


@contextmanager
def explain_errors(refused: str, gone: Collection[int]) -> Iterator[None]:
    """Turn netlink's errors into ours.

    Raises Unreachable for the codes `gone`, Refused for others.
    """
    try:
        yield
    except NetlinkError as error:
        if error.code in gone:
            raise Unreachable("the port went away meanwhile") from None
        raise Refused(f"{refused}: {error}") from None

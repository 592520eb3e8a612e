"""Something else happens between a caller's last look and its write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.client import Client


def happen_before(patch: pytest.MonkeyPatch, call: str, meanwhile: Callable[[Any], object]) -> None:
    """Have `meanwhile` happen once, before the next call of this name by any client, `acls.put` for one.

    It is given the area of that client.
    """
    area, verb = call.split(".")
    with Client("http://127.0.0.1:1") as nobody:
        calls = type(getattr(nobody, area))
    real = getattr(calls, verb)

    def late(self: object, *arguments: Any, **named: Any) -> Any:
        patch.setattr(calls, verb, real)
        meanwhile(self)
        return real(self, *arguments, **named)

    patch.setattr(calls, verb, late)

"""Endpoints by name in rules: ``web1`` is kept as ``@endpoint:web1``, a group that follows the endpoint's addresses.

A rule that names an endpoint names an address group whose members the service keeps: they are the endpoint's addresses,
in the same generation that changes them. So no compiler, format or proof knows of endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "endpoint:"
"""Groups whose names begin so are kept by the service."""

_BARE = re.compile(r"(?!any\Z)[A-Za-z_][A-Za-z0-9_.-]{0,54}")
_SIDES = ("source", "destination")


def endpoint_of_group(group: str) -> str | None:
    """The endpoint that a group follows; None for any other group."""
    return group.removeprefix(PREFIX) if group.startswith(PREFIX) else None


def reference_text(text: str) -> str:
    """An address of a rule as people write it: ``web1`` for ``@endpoint:web1``, all else as it is."""
    name = text.removeprefix(f"@{PREFIX}")
    return name if _BARE.fullmatch(name) else text


def with_references(document: Mapping[str, object]) -> dict[str, object]:
    """A rule's document whose sides may name endpoints as people do, with references to their groups instead."""
    return {name: _side(value) if name in _SIDES else value for name, value in document.items()}


def _side(value: object) -> object:
    if isinstance(value, list):
        return [_side(item) for item in value]
    return f"@{PREFIX}{value}" if isinstance(value, str) and _BARE.fullmatch(value) else value

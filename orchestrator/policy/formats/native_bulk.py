"""Rules of the native form by the thousand: the extension (`policy/_native/rules`), made ready.

It reads and writes the plain rules, which are nearly all, and leaves those with anything unusual, or wrong, to
`native.py`. Law: whoever did it, the same came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

from orchestrator.policy import _rules
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import Action, Direction, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import format_protocol

_PROTOCOLS = 256


class Bulk(Protocol):
    """The functions of the extension."""

    def read(self, documents: list[object], /) -> list[Rule | None]:
        """The rules of parsed JSON objects, None for each that is to be read otherwise."""

    def write(self, rules: tuple[Rule, ...], /) -> list[str | None]:
        """The JSON texts of rules, None for each that is to be written otherwise."""


def bulk(readers: Mapping[str, Callable[[Any], object]], prefix_text: Callable[[Prefix], str]) -> Bulk:
    """The extension, given the readers of a rule's fields and what writes a prefix."""
    names = _fields(Rule)
    _rules.setup(
        Rule, names, tuple(field.default for field in fields(Rule)), tuple(readers.get(name) for name in names),
        Addresses, _fields(Addresses), Prefix, _fields(Prefix), PortRange, _fields(PortRange),
        Family.IPV4, ANY, EVERY_PORT,
        tuple((member, member.value) for kind in (Direction, Action) for member in kind),
        tuple(format_protocol(number) for number in range(_PROTOCOLS)),
        prefix_text,
    )  # fmt: skip
    found: Bulk = _rules
    return found


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))

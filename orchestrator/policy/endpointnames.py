"""Endpoints by name in rules: ``web1`` is stored as the group ``@endpoint:web1``.

The group follows the endpoint's addresses.

A rule that names an endpoint names an address group whose members the service keeps: they are the endpoint's addresses,
in the same generation that changes them. So no compiler, format or proof knows of endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family, parse_address

PREFIX = "endpoint:"
"""Groups whose names begin so are kept by the service."""

_BARE = re.compile(r"(?!any\Z)[A-Za-z_][A-Za-z0-9_.-]{0,54}")
_SIDES = ("source", "destination")


def endpoint_of_group(group: str) -> str | None:
    """The endpoint that a group follows; None for any other group."""
    return group.removeprefix(PREFIX) if group.startswith(PREFIX) else None


def reference_text(text: str) -> str:
    """Write a rule's address as people do: ``web1`` for ``@endpoint:web1``, else unchanged."""
    name = text.removeprefix(f"@{PREFIX}")
    return name if _BARE.fullmatch(name) else text


def with_references(document: Mapping[str, object]) -> dict[str, object]:
    """Replace endpoint names in a rule's document by references to their groups."""
    return {name: _name_side(value) if name in _SIDES else value for name, value in document.items()}


def with_addresses(
    ends: Mapping[str, str], known: Callable[[], Mapping[str, Sequence[str]]], whose: str
) -> dict[str, str]:
    """The two ends of a packet as addresses, where they may name endpoints.

    `known` tells the addresses of endpoints by name, and is asked only if need be; errors say `whose` they are. Of an
    endpoint with several addresses it is the first of the other end's IP version. Raises BadInput with the end.
    """
    names = {end: text for end, text in ends.items() if _version(text) is None}
    endpoints = known() if names else {}
    found = {**ends}
    for end, name in names.items():
        if name not in endpoints:
            raise BadInput(f"'{name}' is no address, and no endpoint of the {whose}", place=end)
        other = _version(next(text for each, text in found.items() if each != end))
        addresses = [prefix.partition("/")[0] for prefix in endpoints[name]]
        found[end] = next((each for each in addresses if other in (None, _version(each))), addresses[0])
    return found


def _version(text: str) -> Family | None:
    """The IP version of an address; None for what is none."""
    try:
        return parse_address(text)[0]
    except AclflowError:
        return None


def _name_side(value: object) -> object:
    if isinstance(value, list):
        return [_name_side(item) for item in value]
    return f"@{PREFIX}{value}" if isinstance(value, str) and _BARE.fullmatch(value) else value

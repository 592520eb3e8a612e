"""The datapath id of a switch: a given one, or that of a host's name.

`aclflow host configure` gives the latter.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from orchestrator.errors import BadInput
from orchestrator.hosts.switch import datapath_of

DatapathId = Annotated[
    str | None,
    typer.Option(
        "--datapath-id",
        help="Of its bridge, up to 16 hexadecimal digits; by default the one that `aclflow host configure` gives it.",
    ),
]
_DIGITS = re.compile(r"(0x)?[0-9a-f]{1,16}\Z", re.IGNORECASE)


def datapath(said: str | None, domain: str, name: str) -> int:
    """A switch's datapath id, from what was said or its domain and name. Raises BadInput."""
    if said is None:
        return datapath_of(domain, name)
    if not _DIGITS.match(said):
        raise BadInput(f"'{said}' is not up to 16 hexadecimal digits", place="--datapath-id")
    return int(said, 16)

"""Names that tenants give, and those that are kept for the service."""

from __future__ import annotations

import re
from typing import NewType

from orchestrator.errors import BadInput

TenantId = NewType("TenantId", str)
RuleId = NewType("RuleId", str)
GroupName = NewType("GroupName", str)

RETURN_RULE_ID = RuleId("_return")
"""Names the return-traffic rule in decisions and hits; ids that start with _ are kept for such rules."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}\Z")


def check_name(name: str, what: str, *, place: str) -> None:
    """Refuse a name that does not fit URLs, file names and shell words."""
    if not _NAME.match(name):
        raise BadInput(name_refusal(name, what), place=place)


def name_refusal(name: str, what: str) -> str:
    """Say why a text cannot be a name, and what can."""
    shown = name if len(name) <= 80 else name[:77] + "..."
    return f"{shown!r} cannot be {what}: use 1 to 64 letters, digits and _ . : -, not starting with . : -"

"""The native form as JSON text, one rule a line, fit for diff."""

from __future__ import annotations

import json

from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.native import VERSION, acl_from_json, group_to_json, rule_to_json, taken_from_json
from orchestrator.policy.formats.native_values import an_object
from orchestrator.policy.formats.results import Exported, Imported, Options
from orchestrator.policy.model import Acl


def read_native(text: str, name: str, options: Options) -> Imported:  # noqa: ARG001 - the shape that all readers have
    """Read a list. Raises BadInput for text that is not JSON, and what `acl_from_json` raises."""
    document = load_json(text)
    acl = acl_from_json(document)
    return Imported(acl, taken_from=taken_from_json(an_object(document, "an access list")))


def write_native(acl: Acl) -> Exported:
    """Write a list; nothing is lost."""
    groups = [f"{_json(name)}: {_json(group_to_json(group))}" for name, group in acl.groups.items()]
    rules = [_json(rule_to_json(rule)) for rule in acl.rules]
    lines = [
        "{",
        f'  "version": {VERSION},',
        f'  "ingress_default": {_json(acl.ingress_default.value)},',
        f'  "egress_default": {_json(acl.egress_default.value)},',
        *_block("groups", groups, "{}", ","),
        *_block("rules", rules, "[]", ""),
        "}",
    ]
    return Exported("\n".join(lines) + "\n")


def _block(key: str, lines: list[str], ends: str, after: str) -> list[str]:
    """A list or an object with one member a line, and what comes after it."""
    if not lines:
        return [f"  {_json(key)}: {ends}{after}"]
    inner = [*(f"    {line}," for line in lines[:-1]), f"    {lines[-1]}"]
    return [f"  {_json(key)}: {ends[0]}", *inner, f"  {ends[1]}{after}"]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)

"""The native form as text: JSON with one rule a line, so that versions of a list can be compared by eye and by diff."""

from __future__ import annotations

import json

from orchestrator.errors import BadInput
from orchestrator.policy.formats.native import VERSION, acl_from_json, group_to_json, rule_to_json
from orchestrator.policy.formats.results import Exported, Imported, Options
from orchestrator.policy.model import Acl


def read_native(text: str, name: str, options: Options) -> Imported:  # noqa: ARG001 - the shape that all readers have
    """Read a list. Raises BadInput for text that is not JSON, and what `acl_from_json` raises."""
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadInput(f"it is not JSON: {error.msg}", place=f"line {error.lineno}") from None
    except RecursionError:
        raise BadInput("it is nested too deep") from None
    except ValueError:  # a number of thousands of digits
        raise BadInput("it holds a number that is too long") from None
    return Imported(acl_from_json(document))


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


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"the key {twice[:80]!r} stands twice in one object")
    return found


def _refuse_constant(text: str) -> object:
    raise BadInput(f"{text} is not JSON")

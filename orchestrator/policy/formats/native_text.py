"""The native form as text: YAML, and JSON with one rule a line.

YAML has the same keys and values, and is easier to write by hand:

    version: 1
    rules:
    - id: web-in
      action: permit
      protocol: tcp
      destination: "@front"
      destination_ports: [80, 443]
"""

from __future__ import annotations

import json
import re

from orchestrator.errors import AclflowError
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.native import (
    VERSION,
    acl_from_json,
    acl_to_json,
    group_to_json,
    rule_to_json,
    taken_from_json,
)
from orchestrator.policy.formats.native_values import an_object
from orchestrator.policy.formats.results import Exported, Imported, Options
from orchestrator.policy.formats.yaml_text import line_of, load_yaml
from orchestrator.policy.model import Acl


def read_native(text: str, name: str, options: Options) -> Imported:  # noqa: ARG001 - the shape that all readers have
    """Read a list. Raises BadInput for text that is not JSON, and what `acl_from_json` raises."""
    document = load_json(text)
    acl = acl_from_json(document)
    return Imported(acl, taken_from=taken_from_json(an_object(document, "an access list")))


def write_native(acl: Acl) -> Exported:
    """Write a list; nothing is lost."""
    groups = [f"{_write_json(name)}: {_write_json(group_to_json(group))}" for name, group in acl.groups.items()]
    rules = [_write_json(rule_to_json(rule)) for rule in acl.rules]
    lines = [
        "{",
        f'  "version": {VERSION},',
        f'  "ingress_default": {_write_json(acl.ingress_default.value)},',
        f'  "egress_default": {_write_json(acl.egress_default.value)},',
        *_block("groups", groups, "{}", ","),
        *_block("rules", rules, "[]", ""),
        "}",
    ]
    return Exported("\n".join(lines) + "\n")


def _block(key: str, lines: list[str], ends: str, after: str) -> list[str]:
    """A list or an object with one member a line, and what comes after it."""
    if not lines:
        return [f"  {_write_json(key)}: {ends}{after}"]
    inner = [*(f"    {line}," for line in lines[:-1]), f"    {lines[-1]}"]
    return [f"  {_write_json(key)}: {ends[0]}", *inner, f"  {ends[1]}{after}"]


def _write_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(/[0-9]+)?\Z")
_NOT_PLAIN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some readers of YAML take for something other than a string, in any case."""


def read_native_yaml(text: str, name: str, options: Options) -> Imported:  # noqa: ARG001 - all readers' shape
    """Read a list.

    Raises BadInput, BadPolicy or TooLarge with a place such as ``line 7, rules[0].action``.
    """
    document = load_yaml(text)
    try:
        acl = acl_from_json(document)
        return Imported(acl, taken_from=taken_from_json(an_object(document, "an access list")))
    except AclflowError as error:
        line = f"line {line_of(text, error.place or '')}"
        error.place = f"{line}, {error.place}" if error.place else line
        raise


def write_native_yaml(acl: Acl) -> Exported:
    """Write a list; nothing is lost."""
    document = acl_to_json(acl)
    rules, groups = document["rules"], document["groups"]
    lines = [f"{key}: {_yaml(document[key])}" for key in ("version", "ingress_default", "egress_default")]
    lines += ["groups:"] if groups else ["groups: {}"]
    if isinstance(groups, dict):
        for name, group in groups.items():
            lines += [f"  {_yaml(name)}:", *(f"    {key}: {_yaml(value)}" for key, value in group.items())]
    lines += ["rules:"] if rules else ["rules: []"]
    if isinstance(rules, list):
        for rule in rules:
            members = [f"{key}: {_yaml(value)}" for key, value in rule.items()]
            lines += [f"- {members[0]}", *(f"  {member}" for member in members[1:])]
    return Exported("\n".join(lines) + "\n")


def _yaml(value: object) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(key)}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _write_string(str(value))


def _write_string(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _NOT_PLAIN:
        return text
    return '"' + "".join(map(_write_character, text)) + '"'


def _write_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08X}"

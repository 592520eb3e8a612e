"""The native form as YAML: the same keys and values, easier to write by hand.

version: 1
rules:
- id: web-in
  action: permit
  protocol: tcp
  destination: "@front"
  destination_ports: [80, 443]
"""

from __future__ import annotations

import re

from orchestrator.errors import AclflowError
from orchestrator.policy.formats.native import acl_from_json, acl_to_json, taken_from_json
from orchestrator.policy.formats.native_values import an_object
from orchestrator.policy.formats.results import Exported, Imported, Options
from orchestrator.policy.formats.yaml_text import line_of, load_yaml
from orchestrator.policy.model import Acl

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
    lines = [f"{key}: {_inline(document[key])}" for key in ("version", "ingress_default", "egress_default")]
    lines += ["groups:"] if groups else ["groups: {}"]
    if isinstance(groups, dict):
        for name, group in groups.items():
            lines += [f"  {_inline(name)}:", *(f"    {key}: {_inline(value)}" for key, value in group.items())]
    lines += ["rules:"] if rules else ["rules: []"]
    if isinstance(rules, list):
        for rule in rules:
            members = [f"{key}: {_inline(value)}" for key, value in rule.items()]
            lines += [f"- {members[0]}", *(f"  {member}" for member in members[1:])]
    return Exported("\n".join(lines) + "\n")


def _inline(value: object) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inline(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _string(str(value))


def _string(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _NOT_PLAIN:
        return text
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08X}"

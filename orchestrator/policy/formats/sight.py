"""The features that identify a format: a text's start, its outermost JSON keys."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOOKED_AT = 1 << 16
"""Characters of a JSON or YAML text whose keys are looked at."""

_JSON_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)(?:"(\s*:)?|\\?\Z)|[{}\[\]]', re.DOTALL)
_YAML_KEY = re.compile(r"^(?:- )?([\"']?)([A-Za-z_][A-Za-z0-9_.-]*)\1[ \t]*:(?=[ \t\r\n]|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sight:
    """A text with the features for guessing its format.

    All of it, whether it starts like JSON, and the keys of its outermost objects.

    The outermost objects are the text itself, or the members of the list that the text is; for YAML, whatever stands
    at the left margin, in all of its documents.
    """

    text: str
    json: bool
    keys: frozenset[str]

    def has(self, *keys: str) -> bool:
        """Whether all these keys are there."""
        return self.keys.issuperset(keys)


def sight_of(text: str) -> Sight:
    """Look at a text. In time that does not depend on its length."""
    start = text[:_LOOKED_AT].lstrip()
    is_json = start[:1] in ("{", "[")
    return Sight(text, is_json, _json_keys(start) if is_json else _yaml_keys(start))


def _json_keys(start: str) -> frozenset[str]:
    outermost = 2 if start[0] == "[" else 1
    depth = 0
    found = set()
    for token in _JSON_TOKEN.finditer(start):
        character = token[0]
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
        elif token[2] and depth == outermost:
            found.add(token[1])
    return frozenset(found)


def _yaml_keys(start: str) -> frozenset[str]:
    return frozenset(token[2] for token in _YAML_KEY.finditer(start))

"""Recognise a text's format by its outermost keys, and the origin that it states.

The origin is the tenant and the list version behind a text. A text of a JSON format states it as a member of its
outermost object, all others in a comment on a line of its own:

    {"taken_from": {"tenant": "blue", "version": 7}, ...}
    ! aclflow: taken_from {"tenant": "blue", "version": 7}

The systems that the formats belong to pass over both. So an edited file says which version was edited, in any format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.native import taken_from_json
from orchestrator.policy.formats.results import TakenFrom

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
    return Sight(text, is_json, _find_json_keys(start) if is_json else _find_yaml_keys(start))


def _find_json_keys(start: str) -> frozenset[str]:
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


def _find_yaml_keys(start: str) -> frozenset[str]:
    return frozenset(token[2] for token in _YAML_KEY.finditer(start))


_KEY = "taken_from"
_COMMENT = re.compile(rf"^[ \t]*[#!][ \t]*aclflow:[ \t]*{_KEY}\b[ \t]*(.*)$", re.MULTILINE)


def stated_in(text: str, origin: TakenFrom, comment: str) -> str:
    """A text that states its origin.

    `comment` begins a comment of the format; empty for a JSON object.

    The statement stands first, so that somebody who opens the file sees it.
    """
    fields = json.dumps(asdict(origin), ensure_ascii=False)
    if comment:
        return f"{comment} aclflow: {_KEY} {fields}\n{text}"
    return text.replace("{", f'{{"{_KEY}": {fields},', 1)


def origin_of(text: str, comment: str) -> TakenFrom | None:
    """The origin that a text states; None where it states none.

    Raises BadInput that names the line.
    """
    if comment:
        found = set(_read_comments(text))
        if len(found) > 1:
            raise BadInput("it says of several versions that it was taken from them", place=_KEY)
        return found.pop() if found else None
    if f'"{_KEY}"' not in text:
        return None
    document = load_json(text)
    return taken_from_json(document) if isinstance(document, dict) else None


def _read_comments(text: str) -> Iterator[TakenFrom]:
    for comment in _COMMENT.finditer(text):
        try:
            found = taken_from_json({_KEY: load_json(comment[1])})
        except AclflowError as error:
            line = text.count("\n", 0, comment.start()) + 1
            raise BadInput(error.reason, place=f"line {line}, {_KEY}") from None
        if found is not None:
            yield found

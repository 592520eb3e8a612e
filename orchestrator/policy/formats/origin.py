"""The origin that a text states: the tenant and the list version behind it.

A text of a JSON format states it as a member of its outermost object, all others in a comment on a line of its own:

    {"taken_from": {"tenant": "blue", "version": 7}, ...}
    ! aclflow: taken_from {"tenant": "blue", "version": 7}

The systems that the formats belong to pass over both. So an edited file says which version was edited, in any format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.formats.json_text import load_json
from orchestrator.policy.formats.native import taken_from_json
from orchestrator.policy.formats.results import TakenFrom

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
        found = set(_of_comments(text))
        if len(found) > 1:
            raise BadInput("it says of several versions that it was taken from them", place=_KEY)
        return found.pop() if found else None
    if f'"{_KEY}"' not in text:
        return None
    document = load_json(text)
    return taken_from_json(document) if isinstance(document, dict) else None


def _of_comments(text: str) -> Iterator[TakenFrom]:
    for comment in _COMMENT.finditer(text):
        try:
            found = taken_from_json({_KEY: load_json(comment[1])})
        except AclflowError as error:
            line = text.count("\n", 0, comment.start()) + 1
            raise BadInput(error.reason, place=f"line {line}, {_KEY}") from None
        if found is not None:
            yield found

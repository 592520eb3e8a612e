"""Parse YAML strictly: plain values only, nothing that grows.

The parser's events are put together here, without recursion, into what JSON would give: objects, lists, strings,
numbers, true, false and null. Anchors, aliases, tags, merge keys and keys that stand twice are refused: an alias can
make a file of a kilobyte into gigabytes, a tag can ask for any type, and the second of two keys would win in silence.

A plain word is a number, a truth or null only where JSON would say so (YAML 1.2's JSON schema, and `~` for null). So
`no`, `22:30` and `010` are strings, which readers of values refuse where they do not belong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import yaml

from orchestrator.errors import BadInput, TooLarge

MOST_LEVELS = 64
"""Objects and lists may stand inside one another so deep."""

MOST_NODES = 5_000_000
"""A text may hold so many values."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?\Z")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}
_ITEM = re.compile(r"\[([0-9]{1,9})\]")


def load_yaml(text: str) -> object:
    """Return the only document of a text.

    Raises BadInput or TooLarge, with the line as its place.
    """
    documents = load_documents(text)
    if len(documents) != 1:
        raise BadInput(f"it holds {len(documents)} YAML documents, and one is wanted")
    return documents[0]


def load_documents(text: str) -> Sequence[object]:
    """Return all non-empty documents of a text.

    Raises BadInput or TooLarge, with the line as its place.
    """
    try:
        return _Builder().documents(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"it is not YAML: {error.problem}", place=f"line {line}") from None
    except yaml.YAMLError as error:
        raise BadInput(f"it is not YAML: {str(error).splitlines()[0][:200]}") from None


def line_of(text: str, place: str, document: int = 0) -> int:
    """Return the line of a place such as ``rules[3].source`` in a parsed text.

    Lines count from 1.

    Of a place that is not there, the line of what would hold it.
    """
    node = next(islice(yaml.compose_all(text, Loader=yaml.CSafeLoader), document, None))
    line, rest = node.start_mark.line, place
    while rest:
        step = next((step for step in _list_steps(node) if _leads_to(step.name, rest)), None)
        if step is None:
            break
        line, node, rest = step.line, step.node, rest[len(step.name) :].removeprefix(".")
    return int(line) + 1


@dataclass(frozen=True, slots=True)
class _Step:
    """One step into a node: its name, its first line, and the node."""

    name: str
    line: int
    node: yaml.Node


def _list_steps(node: yaml.Node) -> Iterator[_Step]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield _Step(key.value, key.start_mark.line, value)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield _Step(f"[{index}]", item.start_mark.line, item)


def _leads_to(name: str, place: str) -> bool:
    """Whether a place begins with a whole step of this name."""
    return place.startswith(name) and place[len(name) : len(name) + 1] in ("", ".", "[")


@dataclass(slots=True)
class _Open:
    """An unfinished object or list: its content, and the key of the next value."""

    holds: dict[str, object] | list[object]
    line: int
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    found: list[object] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    nodes: int = 0

    def documents(self, events: Iterator[yaml.Event]) -> Sequence[object]:
        """Build the documents of a YAML text from its events."""
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                self._check_event(event)
            if isinstance(event, yaml.ScalarEvent):
                self._add_scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open_holder({} if isinstance(event, yaml.MappingStartEvent) else [], _find_line(event))
            elif isinstance(event, yaml.CollectionEndEvent):
                self._add_value(self.stack.pop().holds)
        return [document for document in self.found if document is not None]

    def _check_event(self, event: yaml.NodeEvent) -> None:
        place = f"line {_find_line(event)}"
        if event.anchor is not None:
            raise BadInput(f"anchors and aliases (&{event.anchor[:40]}) are not read: write it out", place=place)
        if getattr(event, "tag", None) is not None:
            raise BadInput("tags (!) are not read: write plain values", place=place)
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise TooLarge(f"it holds more than {MOST_NODES} values", place=place)

    def _open_holder(self, holds: dict[str, object] | list[object], line: int) -> None:
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.holds, dict) and top.key is None:
            raise BadInput("a key must be a word, not an object or a list", place=f"line {line}")
        if len(self.stack) >= MOST_LEVELS:
            raise TooLarge(f"it is nested deeper than {MOST_LEVELS} levels", place=f"line {line}")
        self.stack.append(_Open(holds, line))

    def _add_scalar(self, event: yaml.ScalarEvent) -> None:
        top = self.stack[-1] if self.stack else None
        if top is None or isinstance(top.holds, list) or top.key is not None:
            self._add_value(_read_value(event))
            return
        if event.value in top.holds:
            raise BadInput(
                f"the key {event.value[:80]!r} stands twice in one object", place=f"line {_find_line(event)}"
            )
        if event.value == "<<" and event.implicit[0]:
            raise BadInput("merge keys (<<) are not read: write it out", place=f"line {_find_line(event)}")
        top.key = event.value

    def _add_value(self, value: object) -> None:
        if not self.stack:
            self.found.append(value)
            return
        top = self.stack[-1]
        if isinstance(top.holds, list):
            top.holds.append(value)
        elif top.key is not None:
            top.holds[top.key], top.key = value, None


def _read_value(event: yaml.ScalarEvent) -> object:
    text = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _find_line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1

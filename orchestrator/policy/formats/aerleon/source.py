"""A policy's text with its includes put in, and where its terms stand.

Includes are texts that the caller gives by name (`Options.includes`); nothing is read from anywhere else. A name that
is not given is an error, where the library would go on without it.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.formats.aerleon.library import Filter, parse_document, parse_pol
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.results import Options
from orchestrator.policy.formats.yaml_text import load_yaml

_DEEPEST = 5
_MOST_LINES, _MOST_TERMS = 100_000, 50_000
_LONGEST_HEADER = 200
_HEADER = re.compile(r"^[ \t]*header\s*\{", re.MULTILINE)
_TERM = re.compile(r"^\s*(?:term\s+([^\s{]+)\s*\{|-?\s*name:\s*['\"]?([^'\"#\n]+?)['\"]?\s*(?:#.*)?$)")


@dataclass(slots=True)
class TermLines:
    """The lines of terms, by name, in the order of the text.

    Terms from an include have line 0.
    """

    _lines: Mapping[str, deque[int]]

    def of(self, one: Filter) -> TermLines:
        """The lines of a filter's terms; they are taken from those of the whole text."""
        found: dict[str, deque[int]] = defaultdict(deque)
        for term in one.terms:
            found[term.name].append(self.next_of(term.name))
        return TermLines(found)

    def next_of(self, name: str) -> int:
        """The line of the next term of this name."""
        lines = self._lines.get(name)
        if not lines:
            return 0
        lines.append(found := lines.popleft())
        return found


def filters_of(text: str, options: Options) -> tuple[tuple[Filter, ...], TermLines]:
    """Return the filters of a `.pol` or YAML policy, and the lines of its terms.

    Raises BadInput, TooLarge, Missing.
    """
    lines: dict[str, deque[int]] = defaultdict(deque)
    for number, line in enumerate(text.split("\n"), 1):
        found = _TERM.match(line[:_LONGEST_HEADER])
        if found is not None:
            lines[(found[1] or found[2]).strip()].append(number)
    if looks_like_pol(text):
        whole = list(islice(_with_includes(text, options.includes, _DEEPEST), _MOST_LINES + 1))
        if len(whole) > _MOST_LINES:
            raise TooLarge(f"with its includes it has more than {_MOST_LINES} lines")
        return parse_pol("\n".join(whole), options.definitions), TermLines(lines)
    document = Node(load_yaml(text))
    filters = _limit_terms(
        body for node in document.needed("filters").items() for body in _filters(node, options.includes, _DEEPEST)
    )
    if not filters:
        raise document.fault("it holds no filter")
    return parse_document({**document.object(), "filters": filters}, options.definitions), TermLines(lines)


def looks_like_pol(text: str) -> bool:
    """Whether a text is a policy in Capirca's own language."""
    return _HEADER.search(text) is not None and "::" in text


def _with_includes(text: str, includes: Mapping[str, str], left: int) -> Iterator[str]:
    """The lines of a text, an include for whatever the library would take for one."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) > 1 and words[0] == "#include":
            inner = _include_text(words[1].strip("'\""), includes, left, f"line {number}")
            yield from _with_includes(inner, includes, left - 1)
        else:
            yield line


def _include_text(name: str, includes: Mapping[str, str], left: int, place: str) -> str:
    text = includes.get(name)
    if text is None:
        raise BadInput(f"the included {shown(name)} was not given; --includes names the folder it is in", place=place)
    if not left:
        raise BadInput(f"includes stand more than {_DEEPEST} deep inside one another", place=place)
    return text


def _limit_terms(terms: Iterator[dict[str, object]]) -> list[dict[str, object]]:
    found = list(islice(terms, _MOST_TERMS + 1))
    if len(found) > _MOST_TERMS:
        raise TooLarge(f"with its includes a filter has more than {_MOST_TERMS} terms")
    return found


def _filters(node: Node, includes: Mapping[str, str], left: int) -> Iterator[dict[str, object]]:
    """A filter with the terms that it includes, or the filters of an included file."""
    included = node.member("include")
    if included is not None:
        document = Node(load_yaml(_include_text(included.text(), includes, left, included.place)), included.text())
        held = document.member("filters", "filters_include_only")
        for inner in held.items() if held is not None else []:
            yield from _filters(inner, includes, left - 1)
        return
    header, terms = node.needed("header"), _limit_terms(_read_terms(node.needed("terms").items(), includes, left))
    header.needed("targets").object()
    yield {"header": dict(header.object()), "terms": terms}


def _read_terms(nodes: Sequence[Node], includes: Mapping[str, str], left: int) -> Iterator[dict[str, object]]:
    for node in nodes:
        included = node.member("include")
        if included is None:
            node.needed("name").text()
            yield dict(node.object())
        else:
            document = Node(load_yaml(_include_text(included.text(), includes, left, included.place)), included.text())
            yield from _read_terms(document.needed("terms").items(), includes, left - 1)

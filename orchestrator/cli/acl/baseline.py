"""Known findings: a file beside lists, so that a pipeline fails for new ones only.

It is kept in a repository, together with the lists:

    {"version": 1, "lists": {"list.json": [{"kind": "redundant", "rules": ["web"]},
                                           {"kind": "group", "group": "office"}]}}

A finding is known by its kind and the rules (two of a conflict, else one) or the group that it is said of. Where one
list is judged and the file knows one, they belong together whatever the list's file is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from orchestrator.cli.files import text_of, write_output
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.findings import Kind, Subject
from orchestrator.policy.formats.json_text import load_json, quote_value
from orchestrator.policy.formats.native_values import a_list, an_object, at, read_text

VERSION = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known, by the name of the list."""

    lists: Mapping[str, Sequence[Subject]]

    def of(self, name: str, *, alone: bool) -> Sequence[Subject]:
        """Those of a list; of the only one, if only one list is judged."""
        if alone and len(self.lists) == 1:
            return next(iter(self.lists.values()))
        return self.lists.get(name, ())

    @classmethod
    def read(cls, name: str) -> Baseline:
        """Read a file. Raises Missing, and BadInput with the place."""
        text = text_of(name)
        try:
            document = an_object(load_json(text), "a baseline")
            if document.keys() != {"version", "lists"} or document["version"] != VERSION:
                raise BadInput('a baseline is {"version": 1, "lists": {...}}: write it with --write-baseline')
            lists = at("lists", an_object, document["lists"], "lists by name")
            return cls({each: at(f"lists.{each}", _subjects, known) for each, known in lists.items()})
        except AclflowError as error:
            if error.place is not None and error.place.startswith("line "):
                raise BadInput(error.reason, place=f"{name}, {error.place}") from None
            raise error.within(name) from None

    def write(self, name: str) -> None:
        """Write it to a file. Raises Missing."""
        lists = {each: [_document(subject) for subject in known] for each, known in self.lists.items()}
        text = orjson.dumps({"version": VERSION, "lists": lists}, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        write_output(text.decode() + "\n", name)


def _document(subject: Subject) -> dict[str, object]:
    about = {"group": subject.group} if subject.group is not None else {"rules": list(subject.rules)}
    return {"kind": subject.kind.value, **about}


def _subjects(value: object) -> tuple[Subject, ...]:
    return tuple(at(f"[{index}]", _subject, each) for index, each in enumerate(a_list(value)))


def _subject(value: object) -> Subject:
    fields = an_object(value, "a finding")
    kind = fields.get("kind")
    if kind not in {each.value for each in Kind} or not fields.keys() <= {"kind", "rules", "group"}:
        raise BadInput(f"{quote_value(value)} is no finding: it has a kind, and rules or a group")
    rules = [at("rules", read_text, each) for each in at("rules", a_list, fields.get("rules", []))]
    group = at("group", read_text, fields["group"]) if "group" in fields else None
    return Subject.subject_named(str(kind), rules, group)

"""Expectations as text: sentences one a line, or the same in YAML.

    # shop.expect                                   own: [198.51.100.0/24]
    own is 198.51.100.0/24                          names:
    alice is 192.0.2.10, 2001:db8::10                 alice: [192.0.2.10, "2001:db8::10"]
    web1 is 198.51.100.10                             web1: 198.51.100.10
    alice reaches web1:443                          expect:
    nobody reaches web1:22 from outside             - alice reaches web1:443
                                                    - nobody reaches web1:22 from outside

The grammar, in which words may be written in capitals and a full stop may end a line:

    sentence  =  SUBJECT VERB TARGET {("," | "and") TARGET} {CLAUSE}
    SUBJECT   =  "nobody" | "everybody" | "anybody" | PLACE {("," | "and") PLACE}
    VERB      =  "reaches" | "reach" | "can reach" | "does not reach" | "do not reach" | "cannot reach"
    TARGET    =  ("anybody" | PLACE) [":" PORTS ["/" PROTOCOL]]          web1:443   web1:53/udp   [2001:db8::7]:80,443
    PORTS     =  PORT | PORT "-" PORT, more after commas without blanks
    CLAUSE    =  "with" ("ping" | PROTOCOL)                              for targets without ports
              |  "from" SUBJECTS                                         after nobody, everybody and anybody only
              |  "except" SUBJECTS
    SUBJECTS  =  "outside" | PLACE {("," | "and") PLACE}
    PLACE     =  a name that a line `NAME is PREFIX, PREFIX` or the service explains | PREFIX | "@" GROUP

`outside` is every address that is not the tenant's. A port without a protocol is one of tcp. Errors name file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.expectations import ANYTHING, Expectation, Place, Service, Target
from orchestrator.policy.formats.yaml_text import line_of, load_yaml
from orchestrator.policy.ports import PortRange, normalise_ranges
from orchestrator.policy.protocols import TCP, parse_protocol

MOST_EXPECTATIONS, MOST_BYTES, LONGEST = 500, 256 << 10, 500
"""Sentences of one text, its bytes, and the characters of a sentence."""

_YAML = re.compile(r"^expect[ \t]*:", re.MULTILINE)
_SENTENCE = re.compile(
    r"(?P<subject>.+?)\s+(?P<verb>(?:can\s+)?reach(?:es)?|do(?:es)?\s+not\s+reach|cannot\s+reach)\s+(?P<rest>.+)", re.I
)
_DEFINITION = re.compile(r"(?P<name>\S+)\s+(?:is|are)\s+(?P<prefixes>.+)", re.I)
_CLAUSE = re.compile(r"\s+(with|from|except)\s+", re.I)
_AND = re.compile(r"\s*,\s+|\s+and\s+", re.I)
_TARGET = re.compile(r"(?P<place>\[[^\]]+\]|[^:\s]+):(?P<ports>[0-9,-]+)(?:/(?P<protocol>\S+))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_EVERYBODY = ("nobody", "everybody", "anybody")
_RESERVED = frozenset({*_EVERYBODY, "outside", "own", "and", "with", "from", "except", "is", "are", "ping"})


@dataclass(frozen=True, slots=True)
class Expectations:
    """The sentences of a text, the tenant's own prefixes in it, and its names."""

    sentences: tuple[Expectation, ...]
    own: tuple[Prefix, ...] = ()
    names: Mapping[str, tuple[Prefix, ...]] = field(default_factory=lambda: MappingProxyType({}), hash=False)


def read_expectations(text: str, name: str) -> Expectations:
    """Read a text; `name` is the file's.

    Raises BadInput or TooLarge with the file and the line as its place.
    """
    if len(text.encode()) > MOST_BYTES:
        raise TooLarge(f"it is larger than {MOST_BYTES} bytes", place=name)
    try:
        found = _read_yaml(text, name) if _YAML.search(text) else _read_lines(text, name)
    except AclflowError as error:
        if not (error.place or "").startswith(name):
            error.place = f"{name}, {error.place}" if error.place else name
        raise
    if not found.sentences:
        raise BadInput("it expects nothing: write a line such as `alice reaches web1:443`", place=name)
    if len(found.sentences) > MOST_EXPECTATIONS:
        raise TooLarge(
            f"it has {len(found.sentences)} expectations; at most {MOST_EXPECTATIONS} are judged", place=name
        )
    return found


def read_sentence(text: str, place: str) -> Expectation:
    """Read one sentence. Raises BadInput with its place."""
    try:
        return _read_sentence(" ".join(text.split()), place)
    except AclflowError as error:
        raise BadInput(error.reason, place=place) from None


# ------------------------------------------------------------------------------------------------------ whole texts


def _read_lines(text: str, name: str) -> Expectations:
    own: tuple[Prefix, ...] = ()
    names: dict[str, tuple[Prefix, ...]] = {}
    sentences: list[Expectation] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}, line {number}"
        said = re.sub(r"(^|\s)#.*", "", line).strip().removesuffix(".")
        definition = _DEFINITION.fullmatch(said)
        if not said:
            continue
        if definition is None or _SENTENCE.fullmatch(said):
            sentences.append(read_sentence(said, place))
        elif definition["name"].lower() == "own":
            own = (*own, *_read_prefixes(_AND.split(definition["prefixes"]), place))
        else:
            _define_name(names, definition["name"], _AND.split(definition["prefixes"]), place)
    return Expectations(tuple(sentences), own, MappingProxyType(names))


def _read_yaml(text: str, name: str) -> Expectations:
    document = load_yaml(text)

    def name_place(place: str) -> str:
        return f"{name}, line {line_of(text, place)}"

    if not isinstance(document, dict) or not document.keys() <= {"own", "names", "expect"}:
        raise BadInput("its keys are own, names and expect", place=f"{name}, line 1")
    names: dict[str, tuple[Prefix, ...]] = {}
    given = document.get("names", {})
    if not isinstance(given, dict):
        raise BadInput("names is an object: alice: 192.0.2.10", place=name_place("names"))
    for each, prefixes in given.items():
        _define_name(names, each, _read_texts(prefixes, name_place(f"names.{each}")), name_place(f"names.{each}"))
    own = _read_prefixes(_read_texts(document.get("own", []), name_place("own")), name_place("own"))
    listed = document["expect"]
    if not isinstance(listed, list):
        raise BadInput("expect is a list of sentences", place=name_place("expect"))
    sentences = [_read_item(each, name_place(f"expect[{number}]")) for number, each in enumerate(listed)]
    return Expectations(tuple(sentences), own, MappingProxyType(names))


def _read_item(value: object, place: str) -> Expectation:
    if not isinstance(value, str):
        raise BadInput("an expectation is a sentence; put it in quotes", place=place)
    return read_sentence(value.removesuffix("."), place)


def _read_texts(value: object, place: str) -> Sequence[str]:
    given = value if isinstance(value, list) else [value]
    texts = [each for each in given if isinstance(each, str)]
    if len(texts) < len(given):
        raise BadInput("prefixes are texts; put them in quotes", place=place)
    return texts


def _define_name(names: dict[str, tuple[Prefix, ...]], name: str, prefixes: Sequence[str], place: str) -> None:
    if not _NAME.match(name) or name.lower() in _RESERVED:
        raise BadInput(f"'{name[:80]}' cannot be a name: a letter, then letters, digits, `_ . -`", place=place)
    if name in names:
        raise BadInput(f"'{name}' was explained before", place=place)
    names[name] = _read_prefixes(prefixes, place)


def _read_prefixes(texts: Sequence[str], place: str) -> tuple[Prefix, ...]:
    try:
        return tuple(Prefix.parse(text) for text in texts)
    except AclflowError as error:
        raise BadInput(error.reason, place=place) from None


# -------------------------------------------------------------------------------------------------------- sentences


def _read_sentence(text: str, place: str) -> Expectation:
    found = _SENTENCE.fullmatch(text)
    if len(text) > LONGEST:
        raise BadInput(f"a sentence has at most {LONGEST} characters")
    if found is None:
        raise BadInput(f"'{text[:80]}' is no expectation: write `alice reaches web1:443`, `nobody reaches web1:22`")
    object_text, *parts = _CLAUSE.split(" " + found["rest"])
    clauses = dict(_split_clauses(parts))
    subject, verb = found["subject"], found["verb"].lower()
    is_everybody = subject.lower() in _EVERYBODY
    refuses = "not" in verb
    if subject.lower() == "nobody" and refuses:
        raise BadInput("nobody does not reach: write `everybody reaches` or `nobody reaches`")
    if "from" in clauses and not is_everybody:
        raise BadInput("`from` belongs to nobody, everybody and anybody: name who it is in front instead")
    reaches = not refuses and subject.lower() != "nobody"
    source = (
        _read_place(subject) if not is_everybody else _read_place(clauses["from"]) if "from" in clauses else Place()
    )
    service = _read_service(clauses["with"]) if "with" in clauses else ANYTHING
    targets = tuple(_read_target(each, service) for each in _AND.split(object_text.strip()))
    if reaches and any(each.service == ANYTHING for each in targets):
        raise BadInput("say what is reached: a port as in `web1:443`, or `with ping`")
    return Expectation(
        text, place, reaches, source, targets, _read_place(clauses["except"]) if "except" in clauses else None
    )


def _split_clauses(parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = [each.lower() for each in parts[::2]]
    twice = next((each for each in words if words.count(each) > 1), None)
    if twice is not None:
        raise BadInput(f"`{twice}` stands twice")
    yield from zip(words, parts[1::2], strict=True)


def _read_place(text: str) -> Place:
    words = tuple(_word(each) for each in _AND.split(text.strip()))
    if "outside" in words:
        if len(words) > 1:
            raise BadInput("`outside` stands alone")
        return Place((), outside=True)
    return Place(words)


def _word(text: str) -> str:
    """Read a name, prefix or group, as far as possible without resolving names."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if bare.lower() == "outside":
        return "outside"
    if bare[:1].isdigit() or ":" in bare:
        return str(Prefix.parse(bare))
    if not _NAME.match(bare.removeprefix("@")) or bare.lower() in _RESERVED:
        raise BadInput(f"'{bare[:80]}' is neither a name, a prefix nor @group")
    return bare


def _read_target(text: str, service: Service) -> Target:
    found = _TARGET.fullmatch(text)
    if found is None:
        return Target(Place() if text.lower() in _EVERYBODY[1:] else _read_place(text), service)
    if service != ANYTHING:
        raise BadInput("a port and `with` do not go together: write web1:53/udp")
    place = Place() if found["place"].lower() in _EVERYBODY[1:] else _read_place(found["place"])
    ports = normalise_ranges([PortRange.parse(each) for each in found["ports"].split(",")])
    return Target(place, Service(parse_protocol(found["protocol"]) if found["protocol"] else TCP, ports))


def _read_service(text: str) -> Service:
    return Service(ping=True) if text.lower() == "ping" else Service(parse_protocol(text))

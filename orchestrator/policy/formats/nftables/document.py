"""The objects of a ruleset: chains with their rules, sets and maps, by table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import shown

Json = Mapping[str, object]

FAMILIES = frozenset({"ip", "ip6", "inet", "arp", "bridge", "netdev"})
_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class TableKey:
    """A table is known by its family and its name."""

    family: str
    name: str

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


@dataclass(frozen=True, slots=True)
class RawRule:
    """A rule of the file: its statements, its comment, and its place among all objects.

    Places count from 1.
    """

    number: int
    statements: Sequence[object]
    comment: str


@dataclass(slots=True)
class RawChain:
    """A chain. `hook` is None unless packets come to it from the kernel."""

    table: TableKey
    name: str
    number: int
    hook: str | None
    kind: str
    priority: int
    policy: str
    rules: list[RawRule] = field(default_factory=list)


@dataclass(slots=True)
class RawSet:
    """A set or a map.

    With `changes`, rules or time may change its elements, or a rate whether they match.
    """

    changes: bool
    elements: list[object]


@dataclass(slots=True)
class Ruleset:
    """All objects of a file, in order; chains, sets and maps by name."""

    chains: dict[tuple[TableKey, str], RawChain] = field(default_factory=dict)
    sets: dict[tuple[TableKey, str], RawSet] = field(default_factory=dict)
    dormant: set[TableKey] = field(default_factory=set)


def ruleset_of(document: object) -> Ruleset:
    """Read the objects. Raises BadInput with a place such as ``nftables[12].rule.expr``."""
    objects = _read_object(document, "").get("nftables")
    if not isinstance(objects, list):
        raise BadInput("it is no ruleset of nftables: a list of objects must stand under `nftables`")
    found = Ruleset()
    for index, item in enumerate(objects):
        place = f"nftables[{index}]"
        kind, body = single(item, place)
        if kind in ("add", "create"):
            place = f"{place}.{kind}"
            kind, body = single(body, place)
        elif kind in ("delete", "destroy", "flush"):
            _forget(found, kind, *single(body, f"{place}.{kind}"), place)
            continue
        reader = _READERS.get(kind)
        if reader is not None:
            reader(found, _read_object(body, f"{place}.{kind}"), f"{place}.{kind}", index + 1)
        elif kind not in _PASSED_OVER:
            raise BadInput(f"'{shown(kind, _MOST_SHOWN)}' is no object of a ruleset that is known here", place=place)
    return found


def single(value: object, place: str) -> tuple[str, object]:
    """An object of one member, as its key and its value. Raises BadInput."""
    if not isinstance(value, dict) or len(value) != 1:
        raise BadInput("an object with one member must stand here", place=place)
    return next(iter(value.items()))


def _forget(found: Ruleset, verb: str, kind: str, body: object, place: str) -> None:
    """`flush ruleset` and `delete table`: what a file that is loaded begins with."""
    if kind == "ruleset" and verb == "flush":
        found.chains.clear()
        found.sets.clear()
        found.dormant.clear()
    elif kind == "table" and verb in ("delete", "destroy"):
        gone = _read_table(_read_object(body, place), place, "name")
        found.dormant.discard(gone)
        found.chains = {key: chain for key, chain in found.chains.items() if key[0] != gone}
        found.sets = {key: held for key, held in found.sets.items() if key[0] != gone}
    else:
        raise BadInput(f"`{verb} {shown(kind, _MOST_SHOWN)}` changes a ruleset; a whole one is read here", place=place)


def _add_table(found: Ruleset, body: Json, place: str, number: int) -> None:  # noqa: ARG001 - the readers' shape
    key = _read_table(body, place, "name")
    if "dormant" in _read_words(body.get("flags")):
        found.dormant.add(key)


def _add_chain(found: Ruleset, body: Json, place: str, number: int) -> None:
    table, name = _read_table(body, place), _read_text(body, "name", place)
    policy = body.get("policy", "accept")
    if policy not in ("accept", "drop"):
        raise BadInput("a policy is accept or drop", place=f"{place}.policy")
    priority = body.get("prio", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise BadInput("a priority is a whole number", place=f"{place}.prio")
    hook = _read_text(body, "hook", place) if "hook" in body else None
    kind = _read_text(body, "type", place) if "type" in body else ""
    if (table, name) in found.chains:
        raise BadInput(f"the chain {shown(name, _MOST_SHOWN)} stands twice in the table {table}", place=place)
    found.chains[table, name] = RawChain(table, name, number, hook, kind, priority, str(policy))


def _add_rule(found: Ruleset, body: Json, place: str, number: int) -> None:
    chain = found.chains.get((_read_table(body, place), _read_text(body, "chain", place)))
    if chain is None:
        raise BadInput("its chain does not stand before it", place=place)
    if "index" in body or "position" in body:
        raise BadInput("a rule that is put at a place among others; a whole ruleset is read here", place=place)
    statements = body.get("expr", [])
    if not isinstance(statements, list):
        raise BadInput("the statements of a rule are a list", place=f"{place}.expr")
    comment = body.get("comment", "")
    chain.rules.append(RawRule(number, statements, comment if isinstance(comment, str) else ""))


def _add_set(found: Ruleset, body: Json, place: str, number: int) -> None:  # noqa: ARG001 - the readers' shape
    flags = _read_words(body.get("flags"))
    changes = bool({"dynamic", "timeout"} & flags) or "timeout" in body or not _only_counts(body.get("stmt", []))
    key = _read_table(body, place), _read_text(body, "name", place)
    found.sets[key] = RawSet(changes, _read_elements(body, place))


def _add_elements(found: Ruleset, body: Json, place: str, number: int) -> None:  # noqa: ARG001 - the readers' shape
    holder = found.sets.get((_read_table(body, place), _read_text(body, "name", place)))
    if holder is None:
        raise BadInput("its set does not stand before it", place=place)
    holder.elements += _read_elements(body, place)


_READERS = {
    "table": _add_table,
    "chain": _add_chain,
    "rule": _add_rule,
    "set": _add_set,
    "map": _add_set,
    "meter": _add_set,
    "element": _add_elements,
}
_PASSED_OVER = frozenset(
    {"metainfo", "counter", "quota", "limit", "ct helper", "ct timeout", "ct expectation", "flowtable", "secmark"}
    | {"synproxy", "tunnel"}
)
"""Objects that decide nothing by themselves."""


def _read_object(value: object, place: str) -> Json:
    if not isinstance(value, dict):
        raise BadInput("an object must stand here", place=place or None)
    return value


def _read_text(body: Json, key: str, place: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value or len(value) > 256:
        raise BadInput("a name must stand here", place=f"{place}.{key}")
    return value


def _read_table(body: Json, place: str, key: str = "table") -> TableKey:
    family = _read_text(body, "family", place)
    if family not in FAMILIES:
        raise BadInput(f"'{shown(family, _MOST_SHOWN)}' is no family of tables", place=f"{place}.family")
    return TableKey(family, _read_text(body, key, place))


def _read_elements(body: Json, place: str) -> list[object]:
    elements = body.get("elem", [])
    if not isinstance(elements, list):
        raise BadInput("the elements of a set are a list", place=f"{place}.elem")
    return list(elements)


def _only_counts(statements: object) -> bool:
    """Whether the statements that a set has for each of its elements decide nothing."""
    return isinstance(statements, list) and all(
        isinstance(one, dict) and one.keys() <= {"counter", "last"} for one in statements
    )


def _read_words(value: object) -> frozenset[str]:
    words = value if isinstance(value, list) else [value]
    return frozenset(word for word in words if isinstance(word, str))

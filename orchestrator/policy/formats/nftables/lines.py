"""Turn one rule into lines of a chain: its matches, its other conditions, its verdict.

A rule is a list of statements, each of one member. Matches narrow; counters, logs and the like pass on; limits, quotas
and whatever is not known make the rule one that may hold or not. A verdict map becomes one line for each of its
elements, which exclude one another.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Doubt, marker_in, plain, shown
from orchestrator.policy.formats.draft import Draft, boxes_of_draft
from orchestrator.policy.formats.nftables.document import RawChain, RawRule, TableKey, single
from orchestrator.policy.formats.nftables.matches import (
    STATES,
    combinations,
    interface_of,
    is_state,
    narrow_states,
    read_match,
)
from orchestrator.policy.formats.nftables.matchfields import field_of, narrow_field, universe_of
from orchestrator.policy.formats.nftables.values import Scope, value_of
from orchestrator.policy.formats.results import NOT_SAID, Interfaces
from orchestrator.policy.formats.tables import LOGGING, PASSING, UNCLEAR, Line, Match
from orchestrator.policy.spans import Spans

_VERDICTS: Mapping[str, str] = MappingProxyType(
    {"accept": "ACCEPT", "drop": "DROP", "reject": "REJECT", "return": "RETURN", "continue": ""}
)
_PASSING = frozenset(
    {"counter", "comment", "last", "notrack", "ct helper", "ct timeout", "ct expectation", "flow", "dup", "secmark"}
)
"""Statements that decide nothing and change nothing that a later match looks at."""

_NOT_LOOKED_AT = frozenset(
    {("ip", "dscp"), ("ip", "ecn"), ("ip", "ttl"), ("ip6", "dscp"), ("ip6", "ecn"), ("ip6", "hoplimit")}
    | {("ip6", "flowlabel"), ("ether", "saddr"), ("ether", "daddr")}
)
"""Fields that a rule may change without a later match being read wrongly: what looks at them is a loss.

So is what looks at DSCP in a file that changes it.
"""

_UNSEEN: Mapping[str, str] = MappingProxyType(
    {
        "limit": "rates are not counted here",
        "quota": "bytes are not counted here",
        "ct count": "connections are not counted here",
        "set": "a set that rules fill is not in the file",
        "map": "a map that rules fill is not in the file",
        "meter": "rates are not counted here",
        "xt": "what an extension of iptables looks at is not in the file",
    }
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's verdict for a packet: a target as in `formats/tables`, and whether it returns."""

    target: str
    goto: bool = False


def chain_name(table: TableKey, name: str) -> str:
    """How lines call a chain; no target is called so."""
    return f"{table}/{name}"


def lines_of(
    rule: RawRule, chain: RawChain, family: Family, scope: Scope, interfaces: Interfaces = NOT_SAID
) -> Iterator[Line]:
    """Return the lines of a rule for one IP version.

    Raises BadInput, or TooLarge, with the rule's statement as its place.
    """
    reader = _Rule(rule, chain, Draft(family, interfaces), scope)
    try:
        for index, statement in enumerate(rule.statements):
            if isinstance(statement, str):
                reader.take_words()
            else:
                reader.take(*single(statement, f"expr[{index}]"), f"expr[{index}]")
        yield from reader.lines()
    except AclflowError as error:
        raise error.within(f"nftables[{rule.number - 1}].rule") from None


class _Rule:
    """A rule as far as it has been read."""

    def __init__(self, rule: RawRule, chain: RawChain, draft: Draft, scope: Scope) -> None:
        self._number = rule.number
        self._text = shown(f"{chain.table} {chain.name}: {_write_statements(rule.statements)}")
        self._marker, self._description = marker_in(plain(rule.comment))
        self._table = chain.table
        self._draft = draft
        self._scope = scope
        self._logs = False
        self._rest_is_open = False  # a statement of unknown effect was read: what follows it does not count
        self._has_extension = False  # an extension of iptables was read that may be a match or a target
        self._outcomes: list[tuple[Draft, Verdict]] | None = None

    def take(self, kind: str, body: object, place: str) -> None:
        """Read one statement."""
        if self._rest_is_open:
            return
        if self._outcomes is not None:
            raise BadInput("nothing can follow a verdict", place=place)
        if kind == "match":
            self._narrow_draft(self._draft, body)
        elif kind == "vmap":
            self._outcomes = self._map(body, place)
        elif kind in _VERDICTS or kind in ("jump", "goto"):
            self._outcomes = [(self._draft, self._read_verdict(kind, body, place))]
        elif kind == "log":
            self._logs = True
        elif kind == "xt":
            self._extension(body if isinstance(body, dict) else {})
        elif kind in _UNSEEN:
            self._draft.reasons.append(_UNSEEN[kind])
        elif kind == "mangle" and _changes_nothing_seen(body):
            return
        elif kind not in _PASSING:
            self._decide_openly(kind[:40])

    def take_words(self) -> None:
        """Read nft's own syntax within JSON: jumps to chains without a name."""
        if self._outcomes is None:
            self._decide_openly(UNCLEAR)

    def lines(self) -> Iterator[Line]:
        """The lines that the statements come to."""
        if self._has_extension and self._outcomes is None:  # which may be a target: older versions do not say
            self._decide_openly("xt")
        for draft, verdict in self._outcomes or [(self._draft, Verdict(""))]:
            match = self._make_match(draft)
            if not match.boxes and not match.hidden:
                continue
            if self._logs:
                yield self._make_line(match, Verdict("LOG"))
            if verdict.target:
                yield self._make_line(match, verdict)

    def _narrow_draft(self, draft: Draft, body: object) -> None:
        try:
            self._refuse_changed(body)
            read_match(draft, body, self._scope)
        except BadInput as error:
            draft.reasons.append(error.reason)

    def _decide_openly(self, target: str) -> None:
        """Mark the packet's verdict as unknown, whatever follows in the rule."""
        self._outcomes = [(self._draft, Verdict(target))]
        self._rest_is_open = True

    def _extension(self, body: Mapping[str, object]) -> None:
        """Read a match or target of iptables.

        nft gives its name only, and older versions not even that.
        """
        kind, name = body.get("type"), str(body.get("name"))[:40]
        if kind == "match" and name == "comment":
            return
        if kind == "target" and name in PASSING:
            self._logs |= name in LOGGING
        elif kind == "target":
            self._decide_openly("REJECT" if name == "REJECT" else f"xt {name}")
        else:
            self._draft.reasons.append(_UNSEEN["xt"])
            self._has_extension |= kind != "match"

    def _make_line(self, match: Match, verdict: Verdict) -> Line:
        return Line(self._number, self._text, match, verdict.target, verdict.goto, self._marker, self._description)

    def _make_match(self, draft: Draft) -> Match:
        boxes, hidden = boxes_of_draft(draft)
        return Match(
            boxes=boxes,
            hidden=hidden,
            states=None if draft.states == STATES else draft.states,
            doubts=tuple(Doubt(self._number, self._text, reason) for reason in dict.fromkeys(draft.reasons)),
        )

    def _read_verdict(self, kind: str, body: object, place: str) -> Verdict:
        if kind in _VERDICTS:
            return Verdict(_VERDICTS[kind])
        target = body.get("target") if isinstance(body, dict) else None
        if not isinstance(target, str):
            raise BadInput("a jump names its target", place=place)
        return Verdict(chain_name(self._table, target), goto=kind == "goto")

    def _map(self, body: object, place: str) -> list[tuple[Draft, Verdict]]:
        """The outcomes of a verdict map. Raises BadInput for one that is malformed."""
        key = body.get("key") if isinstance(body, dict) else None
        pairs: list[tuple[object, Verdict]] = []
        try:
            elements = self._scope.elements(body.get("data")) if isinstance(body, dict) else None
        except BadInput as error:
            self._draft.reasons.append(error.reason)
            return [(self._draft, Verdict("vmap"))]
        for element in elements or []:
            if not isinstance(element, list) or len(element) != 2:
                raise BadInput("an element of a verdict map is a key and a verdict", place=place)
            kind, verdict = single(element[1], place)
            if kind not in _VERDICTS and kind not in ("jump", "goto"):
                raise BadInput(f"'{kind[:40]}' is no verdict", place=place)
            pairs.append((element[0], self._read_verdict(kind, verdict, place)))
        try:
            self._refuse_changed(key)
            return list(self._read_pairs(key, [(value_of(value), verdict) for value, verdict in pairs]))
        except BadInput as error:  # any of the verdicts, or none
            self._draft.reasons.append(error.reason)
            return [(self._draft, Verdict("vmap"))]

    def _read_pairs(self, key: object, pairs: list[tuple[object, Verdict]]) -> Iterator[tuple[Draft, Verdict]]:
        kind, inner = single(key, "vmap.key")
        if is_state(key):
            for verdict in dict.fromkeys(verdict for _, verdict in pairs):  # states of one verdict are one line
                yield self._narrow_to_states([value for value, other in pairs if other == verdict]), verdict
            return
        if interface_of(key) is not None:
            yield from self._split_by_interface(key, pairs)
            return
        if kind == "concat":
            axes = combinations(self._draft, inner, [value for value, _ in pairs])
            for chosen, (_, verdict) in zip(axes, pairs, strict=True):
                draft = self._copy_draft()
                draft.either.append((chosen,))
                yield draft, verdict
            return
        found = field_of(key, self._draft)
        universe = universe_of(found.axis, self._draft.family)
        named = [None if value == "*" else self._scope.spans(value, found.number) for value, _ in pairs]
        rest: Spans = spans.minus(universe, spans.union(span for one in named if one is not None for span in one))
        for wanted, (_, verdict) in zip(named, pairs, strict=True):
            draft = self._copy_draft()
            narrow_field(draft, found, spans.intersect(universe, rest if wanted is None else wanted))
            yield draft, verdict

    def _split_by_interface(self, key: object, pairs: list[tuple[object, Verdict]]) -> Iterator[tuple[Draft, Verdict]]:
        named = [value for value, _ in pairs if value != "*"]
        for value, verdict in pairs:
            draft = self._copy_draft()
            op, right = ("!=", {"set": named}) if value == "*" else ("==", value)
            self._narrow_draft(draft, {"op": op, "left": key, "right": right})
            yield draft, verdict

    def _narrow_to_states(self, values: list[object]) -> Draft:
        words = [word.upper() if isinstance(word, str) else "" for word in values]
        if not STATES.issuperset(words):
            raise BadInput("a connection state that is not known here")
        draft = self._copy_draft()
        narrow_states(draft, frozenset(words))
        return draft

    def _refuse_changed(self, expression: object) -> None:
        """Raise BadInput for a look at DSCP in a file that changes it."""
        if self._scope.changes_dscp and _names_dscp(expression):
            raise BadInput("a rule of the file changes DSCP, which is not followed here")

    def _copy_draft(self) -> Draft:
        draft = copy.copy(self._draft)
        draft.axes, draft.either, draft.reasons = dict(draft.axes), list(draft.either), list(draft.reasons)
        return draft


def changes_dscp(rule: RawRule) -> bool:
    """Return whether a rule changes the DSCP of packets."""
    changes = (each["mangle"] for each in rule.statements if isinstance(each, dict) and "mangle" in each)
    return any(_names_dscp(change.get("key")) for change in changes if isinstance(change, dict))


def _names_dscp(expression: object) -> bool:
    """Return whether an expression looks at DSCP somewhere."""
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("field") == "dscp":
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def _changes_nothing_seen(body: object) -> bool:
    """Return whether a mangle statement changes only what no match reads."""
    key = body.get("key") if isinstance(body, dict) else None
    if not isinstance(key, dict) or len(key) != 1:
        return False
    kind, inner = next(iter(key.items()))
    if kind == "payload" and isinstance(inner, dict) and inner.keys() == {"protocol", "field"}:
        return (str(inner["protocol"]), str(inner["field"])) in _NOT_LOOKED_AT
    return kind in ("meta", "ct", "tcp option")


def _write_statements(statements: object) -> str:
    try:
        return json.dumps(statements, ensure_ascii=False)
    except RecursionError:
        return "..."

"""One line of an access list of IOS, IOS-XR, NX-OS or EOS, as a clause.

    permit tcp 10.0.0.0 0.0.0.255 any eq 80 established log
    ------ --- ------------------ --- ----- -----------------
    action protocol source [ports] destination [ports] options

A word that is not known ends the reading: all words only narrow a rule, so what was read so far holds all that the
line may match, and the rest is a doubt.

IOS lets later fragments pass a *permit* that names ports or flags, by their addresses alone. Our rules never do; the
reader of the list says so once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Clause, Doubt, marker_in
from orchestrator.policy.formats.cisco import groups as object_groups
from orchestrator.policy.formats.cisco.accesslist import Entry, Groups, Kind
from orchestrator.policy.formats.cisco.fieldwords import (
    Words,
    address,
    addresses,
    protocol,
    service,
    tcp_flags,
    transport,
    wildcard,
)
from orchestrator.policy.formats.lineboxes import HIDDEN_FRAGMENTS, Axes, boxes_of_axes
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.model import Action
from orchestrator.policy.protocols import TCP
from orchestrator.policy.space import LATER, WHOLE, Box
from orchestrator.policy.spans import Span, Spans

_REASONS: Mapping[str, str] = {
    "time-range": "no rule comes and goes by the hour here",
    "reflect": "connections are not tracked here",
    "evaluate": "connections are not tracked here",
    "dynamic": "nobody logs in here to open a rule",
    "dscp": "DSCP stands behind the addresses, ports and flags",
    "precedence": "the precedence stands behind the addresses, ports and flags",
    "tos": "the TOS field has a bit that is ECN's today, which is not looked at here",
    "tracked": "connections are not tracked here",
    "ttl": "the TTL is not looked at here",
    "option": "IP options are not looked at here",
    "flow-label": "flow labels are not looked at here",
    "routing": "routing headers are not looked at here",
    "undetermined-transport": "headers that cannot be found are not looked at here",
}
_DECIDES_NOTHING = frozenset({"capture", "icmp-off", "icmp-on"})
"""IOS-XR: copy the packet to a monitor, answer a denied one or not."""


@dataclass(slots=True)
class _Draft:
    axes: Axes = field(default_factory=dict)
    either: tuple[Axes, ...] = ({},)
    log: bool = False


def clause_of(entry: Entry, kind: Kind, label: str, groups: Groups) -> Clause:
    """The clause of a line. Raises BadInput for a line that neither permits nor denies."""
    action = _read_action(entry)
    family = Family.IPV6 if kind is Kind.IPV6 else Family.IPV4
    draft = _Draft()
    doubts: tuple[Doubt, ...] = ()
    try:
        _read_entry(entry, kind, groups, draft)
    except BadInput as error:
        doubts = (Doubt(entry.line, entry.text, error.reason),)
    sure, maybe = _boxes(draft, family)
    if sure != maybe:
        doubts = (*doubts, Doubt(entry.line, entry.text, HIDDEN_FRAGMENTS, only=Action.DENY))
    marker, description = marker_in(entry.remark)
    return Clause(
        action=action,
        sure=sure if all(doubt.only for doubt in doubts) else (),
        maybe=maybe,
        doubts=doubts,
        line=entry.line,
        text=entry.text,
        label=label,
        marker=marker,
        description=description[:1024],
        log=draft.log,
    )


def _read_action(entry: Entry) -> Action:
    if entry.words[0] in ("permit", "deny"):
        return Action(entry.words[0])
    if entry.words[0] == "evaluate" or (entry.words[0] == "dynamic" and "permit" in entry.words):
        return Action.PERMIT
    if entry.words[0] == "dynamic":
        return Action.DENY
    raise BadInput("this line neither permits nor denies", place=f"line {entry.line}")


def _read_entry(entry: Entry, kind: Kind, groups: Groups, draft: _Draft) -> None:
    if entry.words[0] not in ("permit", "deny"):
        raise BadInput(_REASONS[entry.words[0]])
    words = Words(entry.words[1:])
    if kind is Kind.STANDARD:
        _standard(words, draft)
    else:
        _read_extended(words, kind, groups, draft)
    while words.peek() in _DECIDES_NOTHING:
        words.take("a word")
    draft.log = words.peek() in ("log", "log-input")
    _end(words)


def _standard(words: Words, draft: _Draft) -> None:
    """``any``, ``host A``, or an address whose wildcard mask may be left out."""
    word = words.take("an address")
    if word == "host":
        word = words.take("an address")
    elif word == "any":
        return
    if "/" in word:
        draft.axes["source"] = prefix_spans(word, Family.IPV4)
        return
    value = address(word, Family.IPV4)
    masked = words.peek()[:1].isdigit()
    draft.axes["source"] = wildcard(value, words.take("a mask")) if masked else (Span(value, value),)


def _read_extended(words: Words, kind: Kind, groups: Groups, draft: _Draft) -> None:
    family = Family.IPV6 if kind is Kind.IPV6 else Family.IPV4

    def find_group(name: str) -> Spans:
        return object_groups.network(name, groups, family)

    def read_ports(name: str, number: int) -> Spans:
        return object_groups.ports(name, groups, number)

    number = None
    word = words.take("a protocol")
    if word == "ipv4" and kind is Kind.XR:
        word = "ip"
    if word == "object-group":
        draft.either = object_groups.service(words.take("the name of an object group"), groups)
    else:
        number = protocol(word, family)
        if number is not None:
            draft.axes["protocols"] = 1 << number
    draft.axes["source"] = addresses(words, family, find_group)
    transport(words, number, "source_ports", draft.axes, read_ports)
    draft.axes["destination"] = addresses(words, family, find_group)
    transport(words, number, "destination_ports", draft.axes, read_ports)
    service(words, draft.axes)
    if number == TCP:
        flags = tcp_flags(words, one_only=kind in (Kind.NAMED, Kind.XR))
        if flags is not None:
            draft.axes["tcp_flags"] = flags
            draft.axes["fragments"] = WHOLE
    service(words, draft.axes)
    if words.take_if("fragments"):
        if any(axes.get("fragments") == WHOLE for axes in (draft.axes, *draft.either)):
            draft.either = ({},)  # a deny takes the later fragments along
            raise BadInput("later fragments carry no ports, types or flags to match")
        draft.axes["fragments"] = LATER
    service(words, draft.axes)


def _end(words: Words) -> None:
    """Refuse words after `log`, except one word of the user's own."""
    if words.peek() in ("log", "log-input"):
        words.take("log")
        if words.peek() and words.peek() not in _REASONS:
            words.take("a cookie")
    if words.peek() in _REASONS:
        raise BadInput(_REASONS[words.peek()])
    words.done()


def _boxes(draft: _Draft, family: Family) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return what the line surely matches, and what it may match."""
    found = [boxes_of_axes({**one, **draft.axes}, family) for one in draft.either]
    sure = tuple(box for boxes, _ in found for box in boxes)
    return sure, sure + tuple(box for _, hidden in found for box in hidden)

"""Packets and boxes in words, for people, and as JSON values, for programs.

tcp 192.0.2.1:40000 > 198.51.100.7:80 syn
udp 192.0.2.0/24 > 198.51.100.7, from port 53, to port 1024-65535
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.bitsets import halve_members
from orchestrator.policy.difference import Change
from orchestrator.policy.expectations import Outcome
from orchestrator.policy.fields import (
    CARRIED,
    DESTINATION,
    DOCUMENT_ORDER,
    FRAGMENTS,
    PROTOCOL,
    SOURCE,
    Kind,
    MatchField,
)
from orchestrator.policy.findings import Finding
from orchestrator.policy.history import Bisected, Blame, Verdict
from orchestrator.policy.model import RETURN_RULE_ID, Packet
from orchestrator.policy.protocols import WITH_PORTS, format_protocol
from orchestrator.policy.rulelist import DEFAULT_ID
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, LATER, WHOLE, Box, full_set
from orchestrator.policy.spans import Span, Spans, union
from orchestrator.policy.tcpflags import TcpFlag
from orchestrator.wire.codec import decode
from orchestrator.wire.expectations import AskedList, JudgedExpectation, SamplePacket

K = TypeVar("K")

_MOST_WORDS = 4
_ENDS: dict[str | None, str] = {None: "the default", DEFAULT_ID: "the default", RETURN_RULE_ID: "return traffic"}
"""Longer lists are cut in texts for people, with the number of what is left out."""

_MORE = tuple(field for field in CARRIED if not field.is_spans)
"""The fields that describe a packet besides its protocol, addresses and ports."""

_IN_WORDS = tuple(field for field in DOCUMENT_ORDER if field not in (SOURCE, DESTINATION, PROTOCOL, FRAGMENTS))
"""The fields that describe a box besides its protocols, addresses and fragments."""

_FRAGMENTS = {WHOLE: "first", LATER: "later", WHOLE | LATER: "any"}


def packet_text(packet: Packet) -> str:
    """A packet in one line."""
    source, destination = (format_address(packet.family, end) for end in (packet.source, packet.destination))
    dscp = [f"dscp {packet.dscp}"] if packet.dscp else []
    if packet.later_fragment:
        return " ".join([f"later fragment, {format_protocol(packet.protocol)} {source} > {destination}", *dscp])
    protocol = format_protocol(packet.protocol)
    if packet.protocol in WITH_PORTS:
        joint = "{}:{}" if packet.family is Family.IPV4 else "[{}]:{}"
        source, destination = (
            joint.format(source, packet.source_port),
            joint.format(destination, packet.destination_port),
        )
    more = [_describe_field(field, packet) for field in _MORE if field.is_carried(packet.family, packet.protocol)]
    return " ".join([f"{protocol} {source} > {destination}", *more, *dscp])


def _describe_field(field: MatchField, packet: Packet) -> str:
    value = getattr(packet, field.name)
    return f"{field.label} {value}" if field.kind is Kind.NUMBER else _spell_flags(value) or "no flags"


def packet_json(packet: Packet) -> dict[str, object]:
    """Return a packet in the form of the REST interface: every field, zeros where absent."""
    return {field.name: _spell_value(field, packet) for field in DOCUMENT_ORDER}


def _spell_value(field: MatchField, packet: Packet) -> object:
    value = getattr(packet, field.name)
    if field.kind is Kind.PREFIXES:
        return format_address(packet.family, value)
    return format_protocol(value) if field is PROTOCOL else value


def finding_json(finding: Finding) -> dict[str, object]:
    """Return a finding in the form of the REST interface.

    `group` is null where no address group is meant.
    """
    return {
        "kind": finding.kind.value,
        "rules": list(finding.rules),
        "witness": packet_json(finding.witness) if finding.witness else None,
        "explanation": finding.explanation,
        "severity": finding.severity.value,
        "reason": finding.weight.reason,
        "group": finding.group,
    }


def change_text(direction: str, packets: str, before: Sequence[str], after: Sequence[str], less: Sequence[str]) -> str:
    """Describe a changed box in one line.

    The box's text, less the rules `less`, and the deciding rules.
    """
    return (
        f"{direction}: {packets}{_less_words(less)}  ({_list_deciders(before)} before, {_list_deciders(after)} after)"
    )


def change_json(change: Change) -> dict[str, object]:
    """Return a changed box with its deciding rules and a packet to try.

    Without what the rules `less` match.
    """
    return {
        "direction": change.direction.value,
        "before": list(change.before),
        "after": list(change.after),
        "packets": box_json(change.box),
        "less_before": list(change.less_before),
        "less_after": list(change.less_after),
        "witness": packet_json(change.witness),
    }


def judged_expectations(outcomes: Iterable[Outcome]) -> tuple[JudgedExpectation, ...]:
    """Return the outcomes of expectations as the documents of the REST interface."""
    return tuple(map(_describe_outcome, outcomes))


def _describe_outcome(outcome: Outcome) -> JudgedExpectation:
    asked, witness = outcome.expectation, outcome.witness
    if witness is None or outcome.decision is None:
        return JudgedExpectation(asked.text, asked.place, kept=True, witness=None, packet=None, decided=())
    steps = (
        AskedList(step.direction.value if step.direction else None, step.action.value, step.rule)
        for step in outcome.decision.steps
    )
    sample = decode(SamplePacket, packet_json(witness))
    return JudgedExpectation(asked.text, asked.place, False, packet_text(witness), sample, tuple(steps))


def verdict_json(verdict: Verdict[K]) -> dict[str, object]:
    """Return a list version's verdict for a packet; `rule` is null for the default."""
    return {"version": verdict.version, "action": verdict.action.value, "rule": verdict.rule}


def blame_json(found: Blame[K]) -> dict[str, object]:
    """Return the version that introduced the newest verdict.

    `before` is null where the oldest version has the same one.
    """
    before = verdict_json(found.before) if found.before else None
    return {"now": verdict_json(found.now), "after": verdict_json(found.after), "before": before}


def bisected_json(found: Bisected[K]) -> dict[str, object]:
    """Write two neighbouring versions that disagree, and how many were looked at."""
    return {
        "before": verdict_json(found.before),
        "after": verdict_json(found.after),
        "looked_at": found.looked_at,
        "of": found.of,
    }


def _less_words(rules: Sequence[str]) -> str:
    """Name the rules to leave out of a box, which precede the deciding ones."""
    found = tuple(dict.fromkeys(rules))
    if not found:
        return ""
    return f", less what {_list_deciders(found) if len(found) <= _MOST_WORDS else f'{len(found)} rules before'} take"


def _list_deciders(rules: Iterable[str]) -> str:
    return ", ".join(map(name_decider, rules))


def name_decider(rule: str | None, form: str = "{}") -> str:
    """Return the name of a packet's decider: a rule's id, or a default in words.

    `form` is the text around a rule's id. None stands for the default.
    """
    return _ENDS.get(rule) or form.format(rule)


def box_text(box: Box) -> str:
    """Describe a box in one line.

    Long lists are cut, so it may say less than the box does.
    """
    source, destination = (_describe_addresses(box, side) for side in (box.source, box.destination))
    words = [f"{_describe_protocols(box)} {source} > {destination}"]
    for field in _IN_WORDS:
        texts = _texts(field, box)
        if texts is not None:
            words.append(f"{field.label} {_shorten_words(texts)}" if field.label else _shorten_words(texts, " or "))
    if box.fragments == LATER:
        words.append("later fragments")
    elif box.family is Family.IPV4 and box.fragments == WHOLE and not _needs_header(box):
        words.append("no later fragments")
    return ", ".join(words)


def box_json(box: Box) -> dict[str, object]:
    """A box as sets of values; an axis that holds every value is null."""
    sets = {field.axis: _texts(field, box) for field in DOCUMENT_ORDER if field is not FRAGMENTS}
    return {"ip_version": box.family.value, "fragments": _FRAGMENTS[box.fragments], **sets}


def _texts(field: MatchField, box: Box) -> list[str] | None:
    """Return one axis of a box as texts; None if it holds every value."""
    members = getattr(box, field.axis)
    if members == full_set(field, box.family):
        return None
    if field is PROTOCOL:
        return list(_spell_protocols(box))
    match field.kind:
        case Kind.PREFIXES:
            return [_block_text(box.family, span) for span in members]
        case Kind.BITS:
            return list(_flag_texts(members))
        case _:
            return [*map(_spell_range, members if field.is_spans else _make_spans(members))]


def _needs_header(box: Box) -> bool:
    return any(getattr(box, field.axis) != full_set(field, box.family) for field in CARRIED)


def _describe_addresses(box: Box, spans: Spans) -> str:
    if spans == ALL_ADDRESSES[box.family]:
        return f"any IPv{box.family.value}"
    return _shorten_words(_block_text(box.family, span) for span in spans)


def _block_text(family: Family, span: Span) -> str:
    """Return a span of addresses as a prefix if it is one, else as ends."""
    size = span.high - span.low + 1
    length = family.bits - size.bit_length() + 1
    if size & (size - 1) or span.low & (size - 1):
        return f"{format_address(family, span.low)}-{format_address(family, span.high)}"
    return format_address(family, span.low) if size == 1 else str(Prefix(family, span.low, length))


def _describe_protocols(box: Box) -> str:
    if box.protocols == ALL_BYTES:
        return "any protocol"
    missing = ALL_BYTES & ~box.protocols
    if missing.bit_count() < box.protocols.bit_count():
        return "any protocol but " + _shorten_words(map(format_protocol, _list_members(missing)))
    return _shorten_words(_spell_protocols(box))


def _spell_protocols(box: Box) -> Iterator[str]:
    return map(format_protocol, _list_members(box.protocols))


def _list_members(bits: int) -> list[int]:
    return [number for number in range(256) if bits >> number & 1]


def _make_spans(bits: int) -> Spans:
    return union(Span(number, number) for number in _list_members(bits))


def _spell_range(span: Span) -> str:
    return str(span.low) if span.low == span.high else f"{span.low}-{span.high}"


def _flag_texts(bits: int) -> Iterator[str]:
    """Yield a set of flag bytes as alternatives like `syn set, ack clear`."""
    for value, mask in halve_members(bits, 7):
        needs = [
            f"{names} {state}"
            for state, part in (("set", value), ("clear", mask & ~value))
            if (names := _spell_flags(part))
        ]
        yield ", ".join(needs)


def _spell_flags(flags: int) -> str:
    return "+".join(str(flag.name).lower() for flag in TcpFlag if flags & flag)


def _shorten_words(words: Iterable[str], joint: str = ", ") -> str:
    found: Sequence[str] = list(words)
    shown = joint.join(found[:_MOST_WORDS])
    return shown if len(found) <= _MOST_WORDS else f"{shown} and {len(found) - _MOST_WORDS} more"

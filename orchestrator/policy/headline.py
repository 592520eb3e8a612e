"""Summarize a list's change in a few sentences, the most dangerous first.

    opens every port of every address to everyone                                      high
    closes rule 'web', which decided 12,000 packets in the last 24 hours               high
    opens tcp port 443 of 198.51.100.7 to 192.0.2.0/24                                 none

The input is the difference of two lists as the service tells it (`ChangeBody`): boxes of packets, each with the rules
that decide it before and after. The sentences say where a change is wide; they are not the difference itself.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.describe import name_decider

Json = Mapping[str, Any]

_MOST_SENTENCES = 4
_NAMED = 3
_DEFAULTS = ("_default", "_return")
_EVERY_PROTOCOL = 200
"""A box of so many protocols is called *every*: it is all but those that other boxes of the change hold."""
_PORTED = frozenset(("tcp", "udp", "sctp"))
_WIDE = 1 / 256
"""A far side of this share of all addresses is worth a second look."""


class Danger(enum.IntEnum):
    """How much a reader should look at a sentence. Greater is worse."""

    NONE = 0
    SOME = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing that a change does."""

    text: str
    danger: Danger
    breadth: float = 0.0
    """Orders sentences of the same danger, the widest first."""


UNCHANGED = Sentence("nothing changes: the list is the same already", Danger.NONE)
"""Said of a list that is given as it is."""


_MARKS = {
    "stateless": "decides packets without a look at their connections, whose answers need rules of their own",
    "tracked": "decides packets by their connections, as it did not before",
}
"""The words for packets with the same action that stateless rules decide after a change, and before it."""


def headline(
    changes: Sequence[Json] | None,
    *,
    own: Sequence[Prefix] = (),
    kept: Collection[str] = (),
    packets: Mapping[str, int] | None = None,
) -> tuple[Sentence, ...]:
    """Summarize a change, worst first.

    None for `changes`: the lists are too different to compare.

    `own` are the tenant's prefixes, `kept` the rules that the list still has after the change, `packets` what rules
    decided in the last 24 hours, where that is known.
    """
    if changes is None:
        return (Sentence("the two lists have next to nothing in common: everything may fare otherwise", Danger.HIGH),)
    if not changes:
        return (Sentence("no packet fares otherwise: only words or places of rules change", Danger.NONE),)
    found = [
        *_tell_opened([change for change in changes if change["becomes"] == "permit"], own),
        *_tell_closed([change for change in changes if change["becomes"] == "deny"], kept, packets or {}),
        *_tell_marks(changes),
    ]
    found.sort(key=lambda sentence: (-sentence.danger, -sentence.breadth))
    more = len(found) - _MOST_SENTENCES
    if more <= 0:
        return tuple(found)
    rest = max(sentence.danger for sentence in found[_MOST_SENTENCES:])
    return (*found[:_MOST_SENTENCES], Sentence(f"and makes {more} smaller changes", rest))


def counts_wanted(changes: Sequence[Json] | None) -> tuple[str, ...]:
    """Return the rules that permitted packets which are denied now: `headline` shows their counts."""
    named = (rule for change in changes or () if change["becomes"] == "deny" for rule in change["before"])
    return tuple(dict.fromkeys(rule for rule in named if rule not in _DEFAULTS))


def _tell_marks(changes: Sequence[Json]) -> Iterator[Sentence]:
    """Yield sentences on packets that stateless rules begin or cease to decide."""
    for becomes, text in _MARKS.items():
        marked = [change for change in changes if change["becomes"] == becomes]
        if marked:
            names = dict.fromkeys(name for change in marked for name in change["after"])
            yield Sentence(f"{text}: {_shorten_words([*map(name_decider, names)])}", Danger.SOME)


# ------------------------------------------------------------------------------------------------- what is opened


@dataclass(frozen=True, slots=True, order=True)
class _Opening:
    """Packets that become permitted, in words, and how wide they are."""

    direction: str
    near: str
    near_share: float
    far: str
    far_share: float
    ports: str
    port_share: float
    only_answers: bool
    dscp: str


def _tell_opened(changes: Sequence[Json], own: Sequence[Prefix]) -> Iterator[Sentence]:
    """Yield a sentence per set of boxes that differ only in protocols.

    A direction that is thrown open gets one sentence.
    """
    pairs = ((_make_opening(change, own), change["packets"]["protocols"]) for change in changes)
    told = sorted(pairs, key=lambda one: one[0])
    for _, direction in groupby(told, key=lambda one: one[0].direction):
        some = [*direction]
        whole = _thrown_open(some)
        if whole is not None:
            yield whole
            continue
        for opening, several in groupby(some, key=lambda one: one[0]):
            yield _write_sentence(opening, _unite_protocols([protocols for _, protocols in several]))


def _thrown_open(told: Sequence[tuple[_Opening, Sequence[str] | None]]) -> Sentence | None:
    """Return a sentence if a direction's wide openings cover every protocol, else None."""
    wide = [
        one for one in told if min(one[0].near_share, one[0].far_share, one[0].port_share) >= 0.5 and not one[0].dscp
    ]
    protocols = _unite_protocols([names for _, names in wide])
    if not wide or not protocols.every:
        return None
    widest = max((opening for opening, _ in wide), key=lambda one: (one.far_share, one.near_share, one.port_share))
    return _write_sentence(widest, protocols)


@dataclass(frozen=True, slots=True)
class _Protocols:
    """The protocols of some boxes by name.

    `every`: all of them, or all that anybody uses.
    """

    names: tuple[str, ...]
    every: bool


def _unite_protocols(several: Sequence[Sequence[str] | None]) -> _Protocols:
    names = {name for each in several for name in each or ()}
    every = None in several or (len(names) >= _EVERY_PROTOCOL and names.issuperset(("tcp", "udp")))
    return _Protocols(tuple(sorted(names)), every)


def _make_opening(change: Json, own: Sequence[Prefix]) -> _Opening:
    box, incoming = change["packets"], change["direction"] == "ingress"
    family = Family(box["ip_version"])
    near, far = (box["destination"], box["source"]) if incoming else (box["source"], box["destination"])
    share = _address_share(far, family)
    ours = sum(1 << (family.bits - prefix.length) for prefix in own if prefix.family is family)
    near_share = 1.0 if near is None else min(1.0, _sum_block_sizes(near, family) / (ours or 1 << family.bits))
    ports = box["destination_ports"]
    return _Opening(
        change["direction"],
        _wide_words(near_share, "every address", near),
        near_share,
        _wide_words(share, "everyone", far),
        share,
        "" if ports is None else _shorten_words(ports),
        _measure_port_share(ports),
        _are_answers(box["tcp_flags"]),
        _shorten_words(box.get("dscp") or ()),
    )


def _are_answers(flags: Sequence[str] | None) -> bool:
    """Return whether all packets of a box have ACK or RST set.

    Then none of them opens a connection.
    """
    return flags is not None and all({"ack set", "rst set"} & set(each.split(", ")) for each in flags)


def _write_sentence(opening: _Opening, protocols: _Protocols) -> Sentence:
    every = protocols.every
    what = _describe_ports(opening.ports, protocols)
    if opening.direction == "ingress":
        text = f"opens {what} of {opening.near} to {opening.far}"
    else:
        text = f"lets {opening.near} reach {what} of {opening.far}"
    if opening.dscp:
        text += f" with DSCP {opening.dscp}"
    if opening.only_answers:
        danger = Danger.SOME if opening.far_share >= _WIDE else Danger.NONE
        return Sentence(f"{text}, but to no new connection (packets with ACK or RST only)", danger)
    if opening.direction == "ingress" and opening.far_share >= 0.5:
        wide = opening.port_share >= 0.5 and (every or not _PORTED.isdisjoint(protocols.names))
        breadth = opening.near_share + opening.port_share + every
        return Sentence(text, Danger.HIGH if wide else Danger.SOME, breadth)
    return Sentence(text, Danger.SOME if opening.far_share >= _WIDE else Danger.NONE)


def _describe_ports(ports: str, protocols: _Protocols) -> str:
    names = protocols.names
    if ports:
        return f"{'' if protocols.every else _shorten_words(names) + ' '}port {ports}"
    if protocols.every:
        return "every port"
    if _PORTED.issuperset(names):
        return f"every {' and '.join(names)} port"
    if len(names) >= _EVERY_PROTOCOL:
        left = [name for name in ("tcp", "udp") if name not in names]
        return f"every protocol but {' and '.join(left)}"
    return _shorten_words(names)


def _wide_words(share: float, all_of_it: str, texts: Sequence[str] | None) -> str:
    """Addresses in words: all, nearly all, or a few of them by name."""
    if share == 1 or texts is None:
        return all_of_it
    return f"nearly {all_of_it}" if share >= 0.5 else _shorten_words(texts)


def _address_share(texts: Sequence[str] | None, family: Family) -> float:
    """Which part of all addresses some blocks are."""
    if texts is None:
        return 1.0
    return _sum_block_sizes(texts, family) / (1 << family.bits)


def _sum_block_sizes(texts: Sequence[str], family: Family) -> int:
    return sum(_measure_block(text, family) for text in texts)


def _measure_block(text: str, family: Family) -> int:
    low, dash, high = text.partition("-")
    if dash:
        return parse_address(high)[1] - parse_address(low)[1] + 1
    return 1 << (family.bits - Prefix.parse(text).length)


def _measure_port_share(texts: Sequence[str] | None) -> float:
    if texts is None:
        return 1.0
    ends = [text.partition("-") for text in texts]
    return sum((int(high) if dash else int(low)) - int(low) + 1 for low, dash, high in ends) / 65536


# ------------------------------------------------------------------------------------------------- what is closed


def _tell_closed(changes: Sequence[Json], kept: Collection[str], packets: Mapping[str, int]) -> Iterator[Sentence]:
    deciders = dict.fromkeys(rule for change in changes for rule in change["before"])
    rules = [rule for rule in deciders if rule not in _DEFAULTS]
    gone = [rule for rule in rules if rule not in kept]
    for verb, some in (("closes", gone), ("narrows", [rule for rule in rules if rule not in gone])):
        if some:
            yield _write_closing(verb, some, packets)
    if len(rules) < len(deciders):
        yield Sentence("denies packets that the default permits", Danger.SOME)


def _write_closing(verb: str, rules: Sequence[str], packets: Mapping[str, int]) -> Sentence:
    several = len(rules) > 1
    who = f"{len(rules):,} rules ({_shorten_words(rules)})" if several else f"rule '{rules[0]}'"
    known = [packets[rule] for rule in rules if rule in packets]
    if not known:
        return Sentence(f"{verb} {who}", Danger.SOME)
    total = sum(known)
    that = " that" if several else ", which"
    what = f"{total:,} packet{'' if total == 1 else 's'}" if total else "no packet"
    text = f"{verb} {who}{that} decided {what} in the last 24 hours"
    return Sentence(text, Danger.HIGH if total else Danger.SOME)


def _shorten_words(words: Sequence[str]) -> str:
    shown = ", ".join(words[:_NAMED])
    return shown if len(words) <= _NAMED else f"{shown} and {len(words) - _NAMED} more"

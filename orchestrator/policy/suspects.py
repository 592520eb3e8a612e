"""Findings on a rule or an address group that need no other rule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, Packet, Rule, families, resolve
from orchestrator.policy.protocols import TCP, UDP, format_protocol
from orchestrator.policy.space import WHOLE, Box, boxes_of
from orchestrator.policy.spans import Span

_MOST_WORDS = 3
"""Longer lists are cut in texts, with the number of what is left out."""


@dataclass(frozen=True, slots=True)
class Wide:
    """The limits of a permit that is too wide.

    Its far side has at least this share of all addresses, as a prefix length, and it admits at least so many
    destination ports of TCP or UDP.
    """

    prefix_length: int = 8
    ports: int = 1024


@dataclass(frozen=True, slots=True)
class Remark:
    """A packet to try, where there is one, and what is to be said."""

    witness: Packet | None
    text: str


def why_never(rule: Rule, acl: Acl) -> str:
    """Why a rule matches no packet in its list. It must not."""
    here = [
        {family for family in Family if resolve(side, acl.groups, family)} for side in (rule.source, rule.destination)
    ]
    for side, versions in zip((rule.source, rule.destination), here, strict=True):
        if not versions:
            return f"'{rule.id}' can match nothing: the group '{side.groups[0]}' is empty"
    if boxes_of(rule, acl.groups):
        return f"'{rule.id}' can match nothing: none of its addresses are the tenant's"
    if families(rule, acl.groups):
        return f"'{rule.id}' can match nothing: an IPv6 later fragment does not show its protocol"
    if rule.protocol is not None and here[0] & here[1]:
        protocol = format_protocol(rule.protocol)
        return f"'{rule.id}' can match nothing: {protocol} belongs to the other IP version than its addresses"
    return f"'{rule.id}' can match nothing: its source and its destination are of different IP versions"


def find_expired(rule: Rule, boxes: Sequence[Box], now: dt.datetime | None) -> Remark | None:
    """Remark on a rule whose time is over at `now`."""
    if now is None or rule.expires is None or rule.expires > now:
        return None
    return Remark(boxes[0].witness() if boxes else None, f"'{rule.id}' expired on {rule.expires.isoformat()}")


def wide(rule: Rule, boxes: Iterable[Box], acl: Acl, settings: Wide | None) -> Remark | None:
    """Report a permit that opens many ports to a large part of the world.

    Nothing is wide where the default permits.
    """
    if settings is None or rule.action is Action.DENY or acl.default(rule.direction) is Action.PERMIT:
        return None
    broad = next((box for box in boxes if _is_wide(box, rule.direction, settings)), None)
    if broad is None:
        return None
    far = _find_far_side(broad, rule.direction)
    where = "from" if rule.direction is Direction.INGRESS else "to"
    share = spans.size(far) / (1 << broad.family.bits)
    part = f"{'' if share == 1 else f'{share:.3g} of '}all IPv{broad.family.value} addresses"
    return Remark(broad.witness(), f"'{rule.id}' permits {spans.size(broad.destination_ports)} ports {where} {part}")


def _is_wide(box: Box, direction: Direction, settings: Wide) -> bool:
    share = 1 << max(0, box.family.bits - settings.prefix_length)
    opens = box.tcp_flags >> 0x02 & 1 if box.protocols == 1 << TCP else box.protocols & (1 << TCP | 1 << UDP)
    many = spans.size(box.destination_ports) >= settings.ports
    return bool(box.fragments & WHOLE and opens) and many and spans.size(_find_far_side(box, direction)) >= share


def _find_far_side(box: Box, direction: Direction) -> spans.Spans:
    return box.source if direction is Direction.INGRESS else box.destination


def wordy(group: AddressGroup, users: Sequence[Rule], acl: Acl) -> Remark | None:
    """Report a group that could name the same addresses in fewer prefixes.

    Some lie in others, or are two halves.
    """
    fewest = aggregate(group.prefixes)
    if len(fewest) == len(group.prefixes):
        return None
    merges = [(whole, parts) for whole, parts in _parts(fewest, group.prefixes) if len(parts) > 1]
    shown = [f"{whole} for {_list_prefixes(parts)}" for whole, parts in merges[:_MOST_WORDS]]
    more = f" and {len(merges) - _MOST_WORDS} more" if len(merges) > _MOST_WORDS else ""
    text = (
        f"the group '{group.name}' names in {len(group.prefixes)} prefixes what {len(fewest)} would: "
        f"{'; '.join(shown)}{more}"
    )
    examples = (packet for rule in users for packet in _examples(rule, group, merges[0][0], acl))
    return Remark(next(examples, None), text)


def _parts(wholes: Sequence[Prefix], prefixes: Iterable[Prefix]) -> Iterator[tuple[Prefix, list[Prefix]]]:
    """Yield each of some disjoint prefixes with the given prefixes that lie inside it."""
    left = sorted(prefixes)
    start = 0
    for whole in wholes:
        stop = start
        while stop < len(left) and whole.contains(left[stop]):
            stop += 1
        yield whole, left[start:stop]
        start = stop


def _list_prefixes(prefixes: Sequence[Prefix]) -> str:
    words = [*map(str, prefixes)]
    if len(words) > _MOST_WORDS:
        words = [*words[: _MOST_WORDS - 1], f"{len(words) - _MOST_WORDS + 1} more"]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _examples(rule: Rule, group: AddressGroup, prefix: Prefix, acl: Acl) -> Iterator[Packet]:
    """Yield a packet of a rule with a group, with an address of one prefix."""
    block = (Span(prefix.network, prefix.last),)
    for box in boxes_of(rule, acl.groups):
        if box.family is prefix.family:
            on_source = group.name in rule.source.groups
            yield (box._replace(source=block) if on_source else box._replace(destination=block)).witness()

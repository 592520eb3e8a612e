"""Write lists for systems that match only the far side, or know no denies.

Security groups and network policies never look at source ports or flags: here is what they cannot say of a rule, and
what a box comes to in their words. Without denies a list is its permits, each less the denies before it:

    deny   tcp from 10.1.0.0/16                       permit tcp from 10.0.0.0/16, 10.2.0.0/15, ... (not 10.1.0.0/16)
    permit tcp from 10.0.0.0/8       becomes          and no word of the deny

The pieces are exact in the algebra of packet space, and disjoint from every deny above. Such systems decide about whole
packets, so fragments are left out of account.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import ANY
from orchestrator.policy.formats.express import NO_PACKETS, prefixes_of
from orchestrator.policy.formats.formatlimits import (
    EXPIRES,
    NO_DSCP,
    NO_FLAGS,
    WHOLE_PACKETS,
    Limit,
    note_unwritten,
    tailor_rule,
)
from orchestrator.policy.formats.results import Effect, Loss, Notes
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, WITH_PORTS
from orchestrator.policy.space import ALL_BYTES, WHOLE, Box, boxes_of, everything, merge_boxes, remaining

_REAL_PROTOCOLS = ALL_BYTES & ~(1 << IPV6_FRAGMENT)
"""Those that a whole packet can have."""


def _remove_own_side(rule: Rule) -> Rule:
    return replace(rule, destination=ANY) if rule.direction is Direction.INGRESS else replace(rule, source=ANY)


FAR_SIDE_ONLY = "only the far side can be named"

LIMITS = (
    EXPIRES,
    WHOLE_PACKETS,
    Limit(FAR_SIDE_ONLY, lambda rule: not rule.own_side().is_any, _remove_own_side),
    Limit(
        "source ports cannot be named",
        lambda rule: rule.source_ports != EVERY_PORT,
        lambda rule: replace(rule, source_ports=EVERY_PORT),
    ),
    NO_FLAGS,
    NO_DSCP,
)


@dataclass(slots=True)
class Draft:
    """A list being written: its rules as a system can express them, and the losses."""

    acl: Acl
    system: str
    limits: Sequence[Limit] = LIMITS
    only_permits: bool = True
    losses: list[Loss] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def rules(self, direction: Direction) -> Sequence[Rule]:
        """The rules of one direction, and a last one for what its default permits."""
        kept = []
        for number, rule in enumerate(self.acl.rules, 1):
            if rule.direction is not direction:
                continue
            found = tailor_rule(rule, number, self.limits, self.losses, self.system)
            if found is not None:
                kept.append(found)
            if rule.log:
                self.notes.add("there is no log of single rules", number)
            note_unwritten(rule, number, self.notes)
            if rule.source.groups or rule.destination.groups:
                self.notes.add("address groups are written out as their prefixes", number)
        if self.only_permits and any(rule.action is Action.DENY for rule in kept):
            self.notes.add("it only permits: what is denied is taken out of the permits below it")
        if self.acl.default(direction) is Action.PERMIT:
            kept.append(Rule(RuleId(f"{direction.value}.default"), Action.PERMIT, direction))
        return kept

    def narrower(self, rule: Rule, reason: str) -> None:
        """Take down that a permit is written as less than it is."""
        number = next((number for number, other in enumerate(self.acl.rules, 1) if other.id == rule.id), 0)
        loss = Loss(self.system, number, rule.id, reason, Effect.NARROWER)
        if loss not in self.losses:
            self.losses.append(loss)

    def from_port_one(self, rule: Rule, services: Iterable[Service]) -> Iterator[Service]:
        """The services of a permit for a system that refuses port 0."""
        for service in services:
            if service.protocol not in WITH_PORTS or service.low != 0:
                yield service
                continue
            self.narrower(rule, f"port 0 cannot be named in {self.system}")
            if service.high:
                yield replace(service, low=1)


def far_prefixes(box: Box, direction: Direction) -> list[str]:
    """The far side of a box as prefixes."""
    far = box.source if direction is Direction.INGRESS else box.destination
    return [str(prefix) for prefix in prefixes_of(far, box.family)]


@dataclass(frozen=True, slots=True)
class Service:
    """A protocol (None for all) with a port range, or ICMP type and code."""

    protocol: int | None
    low: int | None = None
    high: int | None = None


def services_of(box: Box, ported: Collection[int]) -> Iterator[Service]:
    """Yield the services that make up a box without source ports and flags.

    Services that no packet has are left out.
    """
    if box.protocols & _REAL_PROTOCOLS == _REAL_PROTOCOLS:
        yield Service(None)
        return
    for number in (number for number in range(256) if box.protocols >> number & 1):
        if number in NO_PACKETS[box.family]:
            continue
        if number in ported:
            for low, high in box.destination_ports:
                yield Service(number) if (low, high) == (0, 65535) else Service(number, low, high)
        elif number in (ICMP, ICMPV6):
            yield from (Service(number, kind, code) for kind, code in _list_kinds(box))
        else:
            yield Service(number)


def _list_kinds(box: Box) -> Iterator[tuple[int | None, int | None]]:
    all_kinds, all_codes = box.icmp
    codes: list[int | None] = [None] if all_codes == ALL_BYTES else _list_members(all_codes)
    kinds = [None] if all_kinds == ALL_BYTES and codes == [None] else _list_members(all_kinds)
    return itertools.product(kinds, codes)


def _list_members(bits: int) -> list[int | None]:
    return [number for number in range(256) if bits >> number & 1]


MOST_PIECES = 10_000
"""A permit that falls into more pieces than this is refused."""


def reduce_permits(rules: Sequence[Rule], acl: Acl) -> Iterator[tuple[Rule, tuple[Box, ...]]]:
    """Yield each permit of one direction, with its packets that no earlier deny matches.

    `acl` resolves the rules' groups. Raises TooLarge, with the rule as its place.
    """
    denies: list[Box] = []
    for rule in rules:
        boxes = _make_whole_boxes(rule, acl)
        if rule.action is Action.DENY:
            denies += boxes
            continue
        pieces: Sequence[Box] = boxes
        for deny in denies:
            pieces = list(remaining(pieces, (deny,)))
            if len(pieces) > MOST_PIECES:
                raise TooLarge(
                    f"what the denies above leave of it falls into more than {MOST_PIECES} pieces", place=rule.id
                )
        yield rule, tuple(pieces) if pieces == boxes else merge_boxes(pieces)


def _make_whole_boxes(rule: Rule, acl: Acl) -> list[Box]:
    found = (box.intersect(everything(box.family)._replace(fragments=WHOLE)) for box in boxes_of(rule, acl.groups))
    return [box for box in found if box is not None]

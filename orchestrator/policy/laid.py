"""Deny rules that hold packets back at one point while others follow.

A set of boxes is held back, from every policy that points may hold. The rules that say it are laid on top of a list and
make flow entries on every host, so they have an end: `MOST_ENTRIES`. Holding back more is always safe.

    exactly the boxes                                               up to MOST_ENTRIES
    their ports, protocols and flags, of every prefix that they touch    else, up to the same
    all that the list is asked about there                          else

"All but one host" of an IPv6 prefix of 48 bits is 80 prefixes, and two such sides with a range of ports are 200,000
flow entries: the second line makes two prefixes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from orchestrator.errors import TooLarge
from orchestrator.policy.formats.express import NO_PACKETS, matches_of
from orchestrator.policy.model import Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange, masks
from orchestrator.policy.space import Box, everything, merge_boxes
from orchestrator.policy.spans import Spans, meet

MOST_ENTRIES = 1024
"""The flow entries that one set of boxes may take in each list."""


@dataclass(slots=True)
class Laid:
    """Packets that are held back in one list, among `all_of`."""

    direction: Direction
    all_of: tuple[Box, ...]
    is_alone: bool = False
    """Whether the rules are stateless: they hold back packets of known connections, too."""
    _boxes: list[Box] | None = field(default_factory=list)

    def add(self, boxes: Iterable[Box] | None) -> None:
        """Hold back these packets as well; None: all."""
        self._boxes = None if boxes is None or self._boxes is None else [*self._boxes, *boxes]

    def rules(self) -> tuple[Rule, ...]:
        """Return the deny rules, none if nothing is held back."""
        if self._boxes is None:
            return self.rules_of_all()
        for boxes in (self._boxes, self._round_boxes(self._boxes)):
            rules = _denying_few(boxes, self.direction)
            if rules is not None:
                return self._mark(rules)
        return self.rules_of_all()

    def rules_of_all(self) -> tuple[Rule, ...]:
        """Return the rules that hold back all packets."""
        return self._mark(rule for box in self.all_of for rule in _denying(box, self.direction))

    def _mark(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Mark rules as stateless where the list decides alone."""
        return tuple(replace(rule, stateless=True) for rule in rules) if self.is_alone else tuple(rules)

    def _round_boxes(self, boxes: Iterable[Box]) -> Iterator[Box]:
        """Yield boxes with every span of addresses whole that they touch."""
        for box in boxes:
            for whole in self.all_of:
                common = box.intersect(whole)
                if common is not None:
                    source, destination = (
                        _find_touched(getattr(whole, axis), getattr(common, axis)) for axis in ("source", "destination")
                    )
                    yield common._replace(source=source, destination=destination)


def _find_touched(whole: Spans, part: Spans) -> Spans:
    """Return the spans that share an address with a part of them."""
    return tuple(span for span in whole if meet((span,), part))


def _denying_few(boxes: Iterable[Box], direction: Direction) -> tuple[Rule, ...] | None:
    """Return rules that deny boxes; None if they take too many flow entries."""
    rules, entries = [], 0
    try:
        for box in merge_boxes(boxes):
            for rule in _denying(box, direction):
                entries += _count_entries(rule)
                if entries > MOST_ENTRIES:
                    return None
                rules.append(rule)
    except TooLarge:
        return None
    return tuple(rules)


def _count_entries(rule: Rule) -> int:
    """Return the flow entries of a rule on a host, but for protocols and flags."""
    sides = max(1, len(rule.source.prefixes)) * max(1, len(rule.destination.prefixes))
    return sides * _count_masks(rule.source_ports) * _count_masks(rule.destination_ports)


def _count_masks(ports: tuple[PortRange, ...]) -> int:
    return sum(len(masks(each)) for each in ports)


def _denying(box: Box, direction: Direction) -> Iterator[Rule]:
    """Rules that deny a box; where no rule leaves its later fragments out, these too.

    Protocols that no packet has by rights are some packet's all the same: with them every protocol is denied.
    """
    if any(box.protocols >> strange & 1 for strange in NO_PACKETS[box.family]):
        box = box._replace(protocols=box.protocols | everything(box.family).protocols)
    for match in matches_of(box, direction):
        yield Rule(RuleId("withheld"), Action.DENY, direction, **match.rule_attributes())

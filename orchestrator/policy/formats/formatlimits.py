"""Fit rules into a format that can express less; used by every writer.

A writer declares what its format cannot say as `Limit`s. A permit that meets one is left out, a deny is written without
the part that cannot be said, so that what is written never permits a packet that the list denies; both are reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OF_ICMP
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.results import Effect, Loss, Notes
from orchestrator.policy.model import Acl, Action, Direction, Rule
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.space import boxes_of

_T = TypeVar("_T")
RuleTest = Callable[[Rule], bool]
RuleChange = Callable[[Rule], Rule]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a format: the rules beyond it, the reason, and a wider replacement."""

    reason: str
    meets: RuleTest
    widened: RuleChange


@dataclass(slots=True)
class ListWriter:
    """A list being written in a format, its losses, and its notes."""

    acl: Acl
    losses: list[Loss] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)


EXPIRES = Limit(
    "a rule that ends at a given time cannot be said",
    lambda rule: rule.expires is not None,
    lambda rule: replace(rule, expires=None),
)


def without_flags(rule: Rule) -> Rule:
    """The rule for segments with any TCP flags."""
    return replace(rule, tcp_flags=None, established=False)


_EVERY_MESSAGE: Mapping[str, Any] = {field.attribute: field.every for field in OF_ICMP}


def without_icmp_type(rule: Rule) -> Rule:
    """The rule for ICMP messages of any type."""
    return replace(rule, **_EVERY_MESSAGE)


WHOLE_PACKETS = Limit(
    "it decides about whole packets: later fragments cannot be told apart",
    lambda rule: rule.fragments or rule.protocol == IPV6_FRAGMENT,
    lambda rule: replace(rule, fragments=False, protocol=None if rule.protocol == IPV6_FRAGMENT else rule.protocol),
)
NO_DSCP = Limit("DSCP is not looked at", lambda rule: rule.dscp is not None, lambda rule: replace(rule, dscp=None))
NO_FLAGS = Limit("TCP flags are not looked at", lambda rule: bool(rule.flag_matches), without_flags)

MOST_LINES = 1_000_000
"""A list that takes more lines than this to write is refused."""


def versions(rule: Rule, acl: Acl) -> frozenset[Family]:
    """The IP versions in which a rule matches some packet at all."""
    found = (box.family for box in boxes_of(rule, acl.groups))
    return frozenset(family for family in found if rule.protocol not in NO_PACKETS[family])


def all_may_pass(acl: Acl, direction: Direction) -> bool:
    """Return whether a direction only has the default permit, so that no list is needed."""
    return acl.default(direction) is Action.PERMIT and not any(rule.direction is direction for rule in acl.rules)


def add_lines(text: list[_T], lines: Iterable[_T], place: str) -> None:
    """Add the lines of one rule, or whatever a format has instead of lines.

    Raises TooLarge, with the rule as its place, beyond MOST_LINES in all.
    """
    text.extend(itertools.islice(lines, MOST_LINES + 1 - len(text)))
    if len(text) > MOST_LINES:
        raise TooLarge(f"it takes more than {MOST_LINES} lines to write this list", place=place)


def tailor_rule(rule: Rule, number: int, limits: Sequence[Limit], losses: list[Loss], file: str) -> Rule | None:
    """Return the rule within some limits, or None if it is left out.

    Adds the cost to `losses`.

    `number` is the rule's place in the list, counted from 1.
    """
    for limit in limits:
        if not limit.meets(rule):
            continue
        effect = Effect.NARROWER if rule.action is Action.PERMIT else Effect.WIDER
        losses.append(Loss(file, number, rule.id, limit.reason, effect))
        if rule.action is Action.PERMIT:
            return None
        rule = limit.widened(rule)
    return rule


def tailored_rules(acl: Acl, limits: Sequence[Limit], system: str, losses: list[Loss], notes: Notes) -> list[Rule]:
    """Return the rules within a system's limits.

    Adds the losses, and notes on what is not written.
    """
    kept = []
    for number, rule in enumerate(acl.rules, 1):
        found = tailor_rule(rule, number, limits, losses, system)
        if found is None:
            continue
        kept.append(found)
        if rule.source.groups or rule.destination.groups:
            notes.add("address groups are written out as their prefixes", number)
        note_unwritten(rule, number, notes)
    return kept


def note_unwritten(rule: Rule, number: int, notes: Notes) -> None:
    """Note what no format but the native one says of a rule."""
    if rule.owner:
        notes.add("owners are not written", number)
    if rule.stateless:
        notes.add("`stateless` is not written: read back, connections decide where the domain tracks them", number)

"""Writing a list in a format that can say less: what every writer does with a rule that does not fit.

A writer declares what its format cannot say as `Limit`s. A permit that meets one is left out, a deny is written without
the part that cannot be said, so that what is written never permits a packet that the list denies; both are reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.results import Effect, Loss
from orchestrator.policy.model import Acl, Action, Rule
from orchestrator.policy.space import boxes_of

RuleTest = Callable[[Rule], bool]
RuleChange = Callable[[Rule], Rule]


@dataclass(frozen=True, slots=True)
class Limit:
    """Something a format cannot say: which rules meet it, why, and the same rule without it (matching more)."""

    reason: str
    meets: RuleTest
    widened: RuleChange


EXPIRES = Limit(
    "a rule that ends at a given time cannot be said",
    lambda rule: rule.expires is not None,
    lambda rule: replace(rule, expires=None),
)


def without_flags(rule: Rule) -> Rule:
    """The rule for segments with any TCP flags."""
    return replace(rule, tcp_flags=None, established=False)


def without_icmp_type(rule: Rule) -> Rule:
    """The rule for ICMP messages of any type."""
    return replace(rule, icmp_type=None, icmp_code=None)


MOST_LINES = 1_000_000
"""A list that takes more lines than this to write is refused."""


def versions(rule: Rule, acl: Acl) -> frozenset[Family]:
    """The IP versions in which a rule matches some packet at all."""
    found = (box.family for box in boxes_of(rule, acl.groups))
    return frozenset(family for family in found if rule.protocol not in NO_PACKETS[family])


def add_lines(text: list[str], lines: Iterable[str], place: str) -> None:
    """Add the lines of one rule. Raises TooLarge, with the rule as its place, beyond MOST_LINES in all."""
    text.extend(itertools.islice(lines, MOST_LINES + 1 - len(text)))
    if len(text) > MOST_LINES:
        raise TooLarge(f"it takes more than {MOST_LINES} lines to write this list", place=place)


def tailored(rule: Rule, number: int, limits: Sequence[Limit], losses: list[Loss], file: str) -> Rule | None:
    """The rule as a format with these limits can say it, None if it is left out. Adds to `losses` what that costs.

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

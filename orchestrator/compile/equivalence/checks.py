"""Check items against their rules and each other, with errors in the list's terms.

Items that are disjoint (`order.py` sees to that), inside their rule and together of its volume are the rule, no more
and no less. `cover` looks at that in C. A volume is how many combinations of address, address, port, port, word,
protocol and kind of fragment there are; it has up to 311 bits and is counted exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.compile import _equivalence as native
from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.order import Pair
from orchestrator.compile.equivalence.provenfacts import NO_ITEMS, Known, join_items
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.rulesets import Wanted, expected_packets
from orchestrator.compile.equivalence.sortedrows import check_verdict
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Rule
from orchestrator.program.flows import FlowTable

COVERED, OUTSIDE, WRONG_VOLUME = range(3)


def cover(items: Items, wanted: Wanted) -> tuple[int, int]:
    """Return the first error and its item (`OUTSIDE`) or rule (`WRONG_VOLUME`).

    Items are ordered by `rule`, the place of their rule in `wanted`.
    """
    return native.cover(items, wanted.wants, *wanted.addresses, *wanted.ports, *wanted.words)


def check_actions(chain: Chain, added: FlowTable, changed: Mapping[int, Known], partly: Mapping[int, Known]) -> None:
    """Hold rows that were added to what their rules do. Raises NotEquivalent."""
    for row, cookie in enumerate(added.cookie.tolist()):
        rule = (changed.get(cookie) or partly[cookie]).rule
        if rule is None:
            raise NotEquivalent("flow entries were added for a rule that is no more", place=chain.place)
        check_verdict(added, row, rule, chain)


def check_changed(chain: Chain, changed: Mapping[int, Known]) -> None:
    """Hold every rule's items to the rule. Raises NotEquivalent."""
    rules: list[Rule] = []
    items = [NO_ITEMS]
    for each in changed.values():
        if each.rule is None:
            if len(each.items):
                raise NotEquivalent("flow entries are left of a rule that is no more", place=chain.place)
            continue
        each.items["rule"] = len(rules)
        rules.append(each.rule)
        items.append(each.items)
    check_cover(chain, tuple(rules), join_items(items))


def check_cover(chain: Chain, rules: tuple[Rule, ...], items: Items) -> None:
    """Check that rules' items are together exactly the rules.

    Raises NotEquivalent.
    """
    wrong, at = cover(items, expected_packets(rules, chain.tables(rules), chain.groups))
    if wrong == OUTSIDE:
        rule = rules[int(items["rule"][at])]
        raise NotEquivalent(f"a flow entry of rule '{rule.id}' holds packets that the rule does not", place=chain.place)
    if wrong != COVERED:
        raise NotEquivalent(f"the flow entries of rule '{rules[at].id}' are not all of its packets", place=chain.place)


def check_order(pair: Pair | None, items: Items, others: Items, place: str) -> None:
    """Raise NotEquivalent for a conflicting pair of items (`order.py`); None: no conflict."""
    if pair is None:
        return
    one, other = items[pair[0]], others[pair[1]]
    if one["key"] == other["key"]:
        raise NotEquivalent("two flow entries of one rule overlap", place=place)
    first, second = sorted((one, other), key=lambda each: int(each["key"]))
    raise NotEquivalent(
        f"two flow entries overlap, and the earlier rule's has priority {first['priority']}, the later one's "
        f"{second['priority']}",
        place=place,
    )

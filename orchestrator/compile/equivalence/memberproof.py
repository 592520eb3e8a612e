"""Prove a rule over an address group after some members changed.

The claim
    Let S be what a side of a rule stood for and S' what it stands for now, and T some prefixes outside which S and S'
    are the same addresses. The rule's items were the rule with S. If the items that go are exactly the rule with what
    of S is in T, and those that come are exactly the rule with what of S' is in T, then its items are the rule with S'.

    For: the items that stay were disjoint from those that go, so they are exactly the rule with S outside T, which is
    the rule with S' outside T; and those that come are the rest of it.

            S   [ a ][ b ][   c   ]  [ d ]            T = [ c ]: c goes, e and f (in c) come
            S'  [ a ][ b ][ e ] [f]  [ d ]            a, b, d are not looked at

T is made of the prefixes of the items themselves and of the members that came and went: it is as large as the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.cover import COVERED, cover
from orchestrator.compile.equivalence.membersets import Regrouped, outermost, sides_of
from orchestrator.compile.equivalence.rowdecoder import FAMILY, Items
from orchestrator.compile.equivalence.rulesets import expected_packets
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Rule, with_sides


def check_members(rule: Rule, chain: Chain, groups: Regrouped, going: Items, coming: Items) -> bool:
    """Check that a rule equals its items after a change.

    False: it is to be examined as a whole.

    That those that go were there, and that those that come do not overlap, is for the caller to show. Raises
    NotEquivalent.
    """
    changed = [name for name, side in sides_of(rule).items() if groups.names(side)]
    if len(changed) != 1:
        return False
    (name,) = changed
    side = sides_of(rule)[name]
    touched = [*prefixes_of(going, name), *prefixes_of(coming, name)]
    if None in touched:
        return False
    places = outermost([*(each for each in touched if each is not None), *groups.other_places(side)])
    for sets, items in ((groups.before, going), (groups.after, coming)):
        part = [each for place in places for each in sets.within(side, place)]
        narrowed = with_sides(rule, {name: Addresses(tuple(part))}) if part else None
        _check_exact(narrowed, rule, items, chain)
    return True


def _check_exact(part: Rule | None, rule: Rule, items: Items, chain: Chain) -> None:
    """Hold items to be exactly a rule's part; None: there is none."""
    if part is None:
        wrong = bool(len(items))
    else:
        own = items.copy()
        own["rule"] = 0
        wrong = cover(own, expected_packets((part,), chain.tables((part,)), chain.groups))[0] != COVERED
    if wrong:
        raise NotEquivalent(
            f"the flow entries of rule '{rule.id}' do not follow the members of its groups", place=chain.place
        )


def prefixes_of(items: Items, name: str) -> Iterator[Prefix | None]:
    """Yield one side of items as prefixes; None for one of no single IP version."""
    side = 0 if name == "source" else 1
    for item in items:
        family = int(item["small_low"][FAMILY])
        if family != int(item["small_high"][FAMILY]) or family not in (Family.IPV4, Family.IPV6):
            yield None
            continue
        below = 128 - Family(family).bits
        low, high = (_join_halves(item[end][side]) >> below for end in ("low", "high"))
        yield Prefix(Family(family), low, Family(family).bits - (high - low).bit_length())


def _join_halves(halves: Sequence[np.uint64]) -> int:
    return int(halves[1]) << 64 | int(halves[0])

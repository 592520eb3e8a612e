"""Reduce a list to permits, each less the denies before it, for systems without denies.

    deny   tcp from 10.1.0.0/16                       permit tcp from 10.0.0.0/16, 10.2.0.0/15, ... (not 10.1.0.0/16)
    permit tcp from 10.0.0.0/8       becomes          and no word of the deny

The pieces are exact in the algebra of packet space, and disjoint from every deny above. Such systems decide about whole
packets, so fragments are left out of account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.errors import TooLarge
from orchestrator.policy.model import Acl, Action, Rule
from orchestrator.policy.space import WHOLE, Box, boxes_of, everything, merge_boxes, remaining

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

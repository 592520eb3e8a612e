"""How many flow entries a box takes is told without making them."""

from __future__ import annotations

from hypothesis import given
from strategies import acls

from orchestrator.compile.lists.boxes import MANY, box_atoms, rows_taken
from orchestrator.compile.openflow.encoder import flow_counts
from orchestrator.policy.model import Acl
from orchestrator.policy.space import Box, boxes_of


def made(box: Box) -> int:
    """By making them."""
    table = box_atoms((box,), MANY)
    return MANY if table is None else min(int(flow_counts(table).sum()), MANY)


@given(acls())
def test_what_is_told_is_what_is_made(acl: Acl) -> None:
    boxes = [box for rule in acl.rules for box in boxes_of(rule, acl.groups)]
    pieces = [piece for one in boxes[:4] for other in boxes[:4] for piece in one.minus(other)]
    for box in (*boxes, *pieces):
        assert rows_taken(box) == made(box)

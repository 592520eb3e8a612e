"""What meets some packets is always found: by the compiler's bounds, from list to list, and by the proof's own."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import acls

from orchestrator.compile.edits import hunks
from orchestrator.compile.equivalence.lines import Lines
from orchestrator.compile.nearby import Bounds
from orchestrator.policy.model import Acl, Direction, Policy, Tenant, TenantId
from orchestrator.policy.space import Box, boxes_of


def meeting(acl: Acl, box: Box, direction: Direction) -> set[int]:
    """The places of the direction's rules that share a packet with a box."""
    return {
        place
        for place, rule in enumerate(acl.rules)
        if rule.direction is direction and any(own.overlaps(box) for own in boxes_of(rule, acl.groups))
    }


@settings(max_examples=60, deadline=None)
@given(acls(max_rules=8, min_rules=1), st.data())
def test_nothing_that_meets_is_missed(acl: Acl, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(acl.rules))), unique=True).map(sorted))
    after = replace(acl, rules=tuple(acl.rules[place] for place in kept))
    bounds = Bounds.of(acl.rules)
    followed = bounds.after(after.rules, hunks(acl.rules, after.rules))
    assert followed.rows.tolist() == Bounds.of(after.rules).rows.tolist()
    tenant = Tenant(TenantId("t"), 7, (), acl, {rule.id: number for number, rule in enumerate(acl.rules, 1)})
    for rule in acl.rules:
        for box in boxes_of(rule, acl.groups):
            for direction in Direction:
                wanted = meeting(acl, box, direction)
                assert set(bounds.near(box, direction)) >= wanted
                lines = Lines.of(Policy((tenant,)), tenant, direction, [box])
                assert {line.name for line in lines.near} >= {acl.rules[place].id for place in wanted}

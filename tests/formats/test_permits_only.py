"""Permits less the denies above them: the same packets pass, whatever the list."""

from __future__ import annotations

import pytest
from formats.iptables_texts import some_corners
from hypothesis import HealthCheck, given, settings
from law_examples import examples
from strategies import acls

from orchestrator.errors import TooLarge
from orchestrator.policy.formats import one_sided
from orchestrator.policy.formats.one_sided import reduce_permits
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.oracle import first_match
from orchestrator.policy.ports import PortRange

slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(acls(max_rules=6))
def test_a_whole_packet_passes_by_a_permit_less_the_denies_above(acl: Acl) -> None:
    for direction in Direction:
        rules = [rule for rule in acl.rules if rule.direction is direction]
        pieces = list(reduce_permits(rules, acl))
        assert [rule for rule, _ in pieces] == [rule for rule in rules if rule.action is Action.PERMIT]
        for packet in some_corners(acl):
            if not packet.later_fragment:
                decided = first_match(rules, packet, direction, acl.groups)
                passes = decided is not None and decided.action is Action.PERMIT
                assert passes is any(box.holds(packet) for _, boxes in pieces for box in boxes), packet


def test_a_permit_in_too_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_sided, "MOST_PIECES", 1)
    port = (PortRange(22, 22),)
    deny = Rule(RuleId("deny"), Action.DENY, protocol=6, source_ports=port, destination_ports=port)
    with pytest.raises(TooLarge, match="what the denies above leave of it") as caught:
        list(reduce_permits([deny, Rule(RuleId("permit"), Action.PERMIT)], Acl()))
    assert caught.value.place == "permit"

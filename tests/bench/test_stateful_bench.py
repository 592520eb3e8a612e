"""What the comparison of connections measures is what it says."""

from __future__ import annotations

from itertools import product

from orchestrator.bench.control_plane import stateful
from orchestrator.bench.ovn import match_of
from orchestrator.bench.traffic.addresses import in_turn
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Direction, Packet
from orchestrator.policy.oracle import first_match
from orchestrator.policy.protocols import TCP


def test_a_download_meets_the_rule_for_it_and_no_other() -> None:
    acl = stateful.web_list()
    sources = [*stateful.CLIENTS, *in_turn(stateful.NAMED, 300), *in_turn(stateful.UNNAMED, 50)]
    for number, (source, server) in enumerate(product(sources, stateful.SERVERS)):
        ends = (parse_address(text)[1] for text in (source, server))
        packet = Packet(Family.IPV4, *ends, TCP, 1024 + 97 * number % 64_000, 80, tcp_flags=2)
        rule = first_match(acl.rules, packet, Direction.INGRESS, acl.groups)
        assert rule is not None
        assert rule.id == "web"
    assert match_of(acl.rules[-2]) == "ip4 && tcp && tcp.dst == 80"


def test_both_programs_hold_the_list_and_stateless_rules_have_tables_of_their_own() -> None:
    tracked, alone = stateful.tracked_and_stateless().values()
    assert len(alone.flows) > len(tracked.flows) > 1_000

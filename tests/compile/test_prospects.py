"""What a switch looks at to find a rule: sources only where some shape on the way asks for them."""

from __future__ import annotations

from dataclasses import replace

from lifted_shop import SHOP, WEB, policy, rule

from orchestrator.compile.lifting.prospects import Prospector
from orchestrator.placement.choice import LEAST_SAVED_US_PER_S, Prospect
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Direction, Policy, RuleId
from orchestrator.policy.ports import PortRange

MANY = tuple(
    rule(f"p{index}", "permit", f"10.{index}.{index * 37 % 256}.{index * 91 % 256}/32", WEB, 1000 + index)
    for index in range(64)
)
"""Rules near the web server's, never for its port."""


def prospect(world: Policy, name: str = "web") -> Prospect | str:
    return Prospector(world).of(LiftedRule(SHOP, RuleId(name)))


def found(world: Policy, name: str = "web") -> Prospect:
    seen = prospect(world, name)
    assert isinstance(seen, Prospect), seen
    return seen


def test_sources_are_looked_at_where_rules_on_the_way_ask_for_them() -> None:
    seen = found(policy(*MANY, rule("web", "permit", "", WEB, 80), operator=()))
    assert seen.now.regions > 64
    assert seen.lifted.regions == 1.0
    assert seen.saves_us_per_s(50.0) > LEAST_SAVED_US_PER_S
    assert seen.saves_us_per_s(500.0) < 10.0, "6,000 connections within a minute meet each of 1,098 entries again"


def test_where_nobody_looks_at_sources_nothing_is_gained() -> None:
    coarse = tuple(rule(f"p{index}", "permit", "", WEB, 1000 + index) for index in range(64))
    seen = found(policy(*coarse, rule("web", "permit", "", WEB, 80), operator=()))
    assert seen.now.regions == 1.0
    assert seen.saves_us_per_s(1e6) == 0.0


def test_client_ports_count_as_well() -> None:
    ported = replace(rule("odd", "deny", "", WEB, 443), source_ports=(PortRange(1, 1023),))
    seen = found(policy(ported, rule("web", "permit", "", WEB, 80), operator=()))
    assert seen.now.regions > 1.0
    assert seen.saves_us_per_s(1.0) > 0.0


def test_one_connection_is_one_region_however_closely_it_is_looked_at() -> None:
    only = replace(rule("web", "permit", "192.0.2.7/32", WEB, 80), source_ports=(PortRange(1000, 1000),))
    seen = found(policy(*MANY, only, operator=()))
    assert (seen.now.regions, seen.replies_lifted.regions) == (1.0, 1.0)
    assert seen.saves_us_per_s(1e6) == 0.0
    few = replace(only, source_ports=(PortRange(1000, 1003),))
    assert found(policy(*MANY, few, operator=())).now.regions <= 4.0


def test_what_stands_below_a_rule_is_not_looked_at() -> None:
    """The list's last shapes have nothing that could win over what was found already."""
    below = rule("rest", "deny", "10.0.0.0/8", WEB, protocol=None)
    seen = found(policy(rule("web", "permit", "", WEB, 80), below, operator=()))
    assert seen.now.regions == 1.0


def test_rules_for_other_addresses_are_not_looked_at() -> None:
    elsewhere = rule("elsewhere", "deny", "", "10.29.4.200/30").destination
    far = tuple(replace(each, destination=elsewhere) for each in MANY)
    seen = found(policy(*far, rule("web", "permit", "", WEB, 80), operator=()))
    assert seen.now.regions == 1.0


def test_replies_are_counted_in() -> None:
    """In egress somebody asks where packets go: without its lift a reply costs an entry a block of addresses."""
    asking = tuple(
        rule(f"e{index}", "deny", WEB, f"10.{index}.0.0/16", 25, direction=Direction.EGRESS) for index in range(32)
    )
    seen = found(policy(rule("web", "permit", "", WEB, 80), *asking, operator=()))
    assert seen.now.regions == 1.0
    assert seen.replies_now.regions > 32
    assert seen.replies_lifted.regions < 8  # client ports, as the few masks that make them up


def test_what_cannot_be_lifted_says_why() -> None:
    world = policy(rule("all", "deny", protocol=None), rule("web", "permit", "", WEB, 80))
    assert prospect(world) == "the rules before it decide all its packets"
    assert prospect(world, "nothing") == "the list has no such rule"

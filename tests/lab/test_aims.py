"""The packets that a demo tries a list with: each meets the rule it is meant for, and can be sent to somebody."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from law_examples import examples
from strategies import acls

from orchestrator.lab import specfile
from orchestrator.lab.aims import OUTSIDE, Aim, aims, description
from orchestrator.policy.addresses import Addresses, Family, Prefix, format_address
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP


def rule(name: str, action: Action, source: str, port: int, protocol: int = TCP, **more: object) -> Rule:
    return Rule(
        RuleId(name),
        action,
        protocol=protocol,
        source=Addresses((Prefix.parse(source),)),
        destination_ports=(PortRange(port, port),),
        **more,  # type: ignore[arg-type]
    )


LIST = Acl(
    (
        rule("web", Action.PERMIT, "10.0.0.0/8", 80),
        rule("hidden", Action.DENY, "10.1.0.0/16", 80),
        rule("dns", Action.DENY, "2001:db8::/32", 53, UDP),
        rule("multicast", Action.PERMIT, "224.0.0.0/4", 80),
        rule("out", Action.DENY, "10.0.0.0/8", 25, direction=Direction.EGRESS),
    )
)


def test_every_rule_that_can_decide_gets_a_packet() -> None:
    found = aims(LIST, ReturnTraffic.ESTABLISHED, most=40)
    assert {(aim.rule, aim.permit) for aim in found} == {
        ("web", True), ("dns", False), ("out", False), ("_return", True), (None, True), (None, False),
    }  # fmt: skip
    assert {aim.packet.family for aim in found if aim.rule is None} == set(Family)
    assert [aim.rule for aim in found if aim.rule == "out"] == ["out"]
    assert all(aim.direction is Direction.EGRESS for aim in found if aim.rule == "out")


def test_few_packets_are_spread_and_balanced() -> None:
    many = Acl(tuple(rule(f"r{n}", Action.PERMIT if n % 4 else Action.DENY, f"10.{n}.0.0/16", 80) for n in range(200)))
    found = aims(many, ReturnTraffic.EXPLICIT, most=20)
    assert len(found) == 20
    assert sum(aim.permit for aim in found) == 10
    numbers = [int(aim.rule[1:]) for aim in found if aim.rule is not None and aim.direction is Direction.INGRESS]
    assert numbers == sorted(numbers)
    assert numbers[0] < 50
    assert numbers[-1] > 150


@given(acl=acls())
@settings(max_examples=examples(60), deadline=None)
def test_every_aim_is_as_the_oracle_says_and_can_be_sent_in_its_point_of_presence(acl: Acl) -> None:
    found = aims(acl, ReturnTraffic.ESTABLISHED, most=16)
    assert 0 < len(found) <= 16
    pop = description(found)
    assert specfile.parse(specfile.dump(pop)) == pop
    inside = {(p.family, p.network) for endpoint in pop.endpoints for p in endpoint.addresses}
    for aim in found:
        step = ask(acl, aim.packet, aim.direction, ReturnTraffic.ESTABLISHED)
        assert (step.rule, step.action is Action.PERMIT) == (aim.rule, aim.permit)
        assert (aim.packet.family, aim.inside) in inside
        assert (aim.packet.family, aim.outside) not in inside
        assert is_sendable(aim.packet)
    assert [client.name for client in pop.clients] == [OUTSIDE]


def is_sendable(packet: Packet) -> bool:
    if packet.family is Family.IPV6:
        addresses = [format_address(packet.family, address) for address in (packet.source, packet.destination)]
        return not any(a.startswith(("ff", "fe8", "::")) for a in addresses) and packet.protocol not in (0, 43, 51, 60)
    return all(1 <= address >> 24 < 224 and address >> 24 != 127 for address in (packet.source, packet.destination))


def test_a_rule_hidden_by_very_many_is_given_up_in_reasonable_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.lab.aims._MOST_TRIES", 50)
    blocks = [rule(f"a{n}", Action.PERMIT, f"10.{n}.0.0/16", 80) for n in range(256)]
    found = aims(Acl((*blocks, rule("hidden", Action.DENY, "10.0.0.0/8", 80))), ReturnTraffic.EXPLICIT, most=600)
    assert "hidden" not in {aim.rule for aim in found}
    assert all(isinstance(aim, Aim) for aim in found)

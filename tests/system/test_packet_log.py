"""Rules with `log`, with real packets: what is reported, how much of it, and what a flood of it costs others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from patience import until
from system.direct import Direct
from system.shooting import F4, F6, POP, SHOP, SYN, Range, packet

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.lab import pop
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Acl, Action, Packet, Policy, Rule, RuleId, TenantId
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.program import Tier

RATE, BURST = 5, 10
REST = Rule(RuleId("rest"), Action.DENY, log=True)


def logging_policy() -> Policy:
    """The shop logs its web, and what nothing else permits; the bank logs all that it denies."""
    rules = tuple(replace(rule, log=True) if rule.id == "web" else rule for rule in SHOP.rules)
    shop = replace(SHOP, rules=(*rules, REST))
    policy = policy_of(POP, {TenantId("shop"): shop, TenantId("bank"): Acl((REST,))})
    return replace(policy, log_limit=LogLimit(RATE, BURST))


@pytest.fixture(scope="module")
def armed(layout: Layout) -> Iterator[tuple[Range, Direct]]:
    lab = pop.up(layout, POP)
    policy = logging_policy()
    with Direct(lab) as direct, Wire(lab) as wire:
        direct.enforce(policy)
        yield Range(lab, wire, policy), direct


def seen_of(direct: Direct, policy: Policy, tenant: str, rule: str, *, least: int = 0) -> list[Packet]:
    """What was shown of a rule so far, when nothing more comes; so many are waited for."""
    (owner,) = [each for each in policy.tenants if each.id == tenant]
    cookie = Cookie(Tier.HOST, Kind.RULE, owner.rule_numbers[rule]).pack()

    def shown() -> list[Packet]:
        return [packet for _, number, packet, _ in direct.sightings if number == cookie]

    until(lambda: len(shown()) >= least, what=shown)
    before = -1
    while before != len(direct.sightings):
        before = len(direct.sightings)
        time.sleep(0.3)
    return shown()


def test_what_a_rule_decides_is_reported_with_its_five_tuple(armed: tuple[Range, Direct]) -> None:
    aim, direct = armed
    sent = [
        ("alice", packet("alice", "web1", F4, TCP, 41000, 80, tcp_flags=SYN)),
        ("mallory", packet("mallory", "web1", F6, TCP, 41001, 80, tcp_flags=SYN)),
        ("mallory", packet("mallory", "web1", F4, UDP, 41002, 123)),
        ("alice", packet("alice", "web1", F4, UDP, 41003, 53)),
    ]
    aim.send(*sent)
    web = seen_of(direct, aim.policy, "shop", "web", least=2)
    assert sorted(web, key=lambda each: each.family) == [each for _, each in sent[:2]]
    assert seen_of(direct, aim.policy, "shop", "rest", least=1) == [sent[2][1]]
    assert seen_of(direct, aim.policy, "shop", "dns") == []


def test_a_flood_is_reported_as_often_as_agreed_and_hides_nobody_elses_packets(armed: tuple[Range, Direct]) -> None:
    aim, direct = armed
    shop_before = len(seen_of(direct, aim.policy, "shop", "rest"))
    bank_before = len(seen_of(direct, aim.policy, "bank", "rest"))
    flood = [shot(aim.lab, "mallory", packet("mallory", "web1", F4, UDP, 30000 + n, 9)) for n in range(3000)]
    began = time.monotonic()
    landed = Counter(aim.fire(flood))
    aim.send(("mallory", packet("mallory", "bank1", F4, UDP, 40000, 9)))
    took_s = time.monotonic() - began
    assert landed == {(): 3000}
    reported = len(seen_of(direct, aim.policy, "shop", "rest", least=shop_before + BURST // 2)) - shop_before
    assert BURST / 2 <= reported <= BURST + RATE * (took_s + 1)
    assert len(seen_of(direct, aim.policy, "bank", "rest", least=bank_before + 1)) - bank_before == 1


def test_packets_are_counted_whether_or_not_they_are_reported(armed: tuple[Range, Direct]) -> None:
    aim, direct = armed
    (owner,) = [each for each in aim.policy.tenants if each.id == "shop"]
    number = owner.rule_numbers["web"]
    host = next(endpoint.host for endpoint in POP.endpoints if endpoint.name == "web1")
    before = direct.packets_by_rule(host).get(number, 0)
    many = [shot(aim.lab, "alice", packet("alice", "web1", F4, TCP, 20000 + n, 80, tcp_flags=SYN)) for n in range(200)]
    assert Counter(aim.fire(many)) == {("web1",): 200}
    assert direct.packets_by_rule(host)[number] - before == 200

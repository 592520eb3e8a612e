"""Deny rules that hold packets back have an end in flow entries; what is beyond is held back with more around it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lifted_shop import SHOP, policy, rule

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.compile.hostprogram import compile_host
from orchestrator.policy import laid
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.intersection import withheld
from orchestrator.policy.laid import MOST_ENTRIES, Laid
from orchestrator.policy.model import Acl, Direction, Policy, Rule
from orchestrator.policy.narrowing import narrow
from orchestrator.policy.ports import PortRange
from orchestrator.policy.space import Box, boxes_of

HOSTS = ("2001:db8:100::20", "2001:db8:200::20")
NETWORKS = tuple(Prefix.parse(text) for text in ("2001:db8:100::/48", "2001:db8:200::/48"))
EGRESS = Direction.EGRESS


def shops(*rules: Rule) -> Policy:
    """Two tenants with a network each, of which the shop has these rules."""
    world = policy(*rules, operator=())
    neighbour, shop = (replace(each, prefixes=(net,)) for each, net in zip(world.tenants, NETWORKS[::-1], strict=True))
    acl = replace(neighbour.acl, rules=())
    return replace(world, tenants=(replace(neighbour, acl=acl), shop), endpoints=())


def boxes(*rules: Rule) -> list[Box]:
    return [box for each in rules for box in boxes_of(each, {}) if box.family.value == 6]


def between(ports: tuple[PortRange, ...], *, but_hosts: bool) -> list[Box]:
    """What is between both networks at some ports, but for what one host of each sends or receives."""
    whole = boxes(
        replace(rule("all", "deny", str(NETWORKS[0]), str(NETWORKS[1]), direction=EGRESS), destination_ports=ports)
    )
    if not but_hosts:
        return whole
    host = boxes(rule("one", "deny", HOSTS[0] + "/128", "", direction=EGRESS))
    other = boxes(rule("two", "deny", "", HOSTS[1] + "/128", direction=EGRESS))
    return [part for box in whole for cut in box.minus(host[0]) for part in cut.minus(other[0])]


def entries_of(rules: tuple[Rule, ...]) -> int:
    """The rows that a host gets of these rules."""
    numbered = [replace(each, id=rule(f"r{place}", "deny").id) for place, each in enumerate(rules)]
    world = shops(*numbered)
    return sum(row.tenant == 7 and row.table == 30 and row.priority > 301 for row in
               compile_host(world, domain="d", generation=1).flows.rows())  # fmt: skip


@pytest.mark.parametrize("ports", [(PortRange(0, 442), PortRange(444, 65535)), (PortRange(443, 443),)])
def test_all_but_a_host_of_each_network_takes_few_entries(ports: tuple[PortRange, ...]) -> None:
    held = Laid(EGRESS, tuple(between((PortRange(0, 65535),), but_hosts=False)))
    held.add(between(ports, but_hosts=True))
    rules = held.rules()
    assert 0 < entries_of(rules) <= MOST_ENTRIES
    assert all(each.destination_ports == ports for each in rules), "only addresses are made wider"
    for box in between(ports, but_hosts=True):
        assert any(cover.holds(box.witness()) for cover in boxes(*rules))


def test_what_takes_few_entries_is_held_back_exactly() -> None:
    held = Laid(EGRESS, tuple(between((PortRange(0, 65535),), but_hosts=False)))
    exact = between((PortRange(443, 443),), but_hosts=False)
    held.add(exact)
    assert boxes(*held.rules()) == exact


def test_packets_of_all_policies_that_hosts_may_hold_have_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several held policies brings packets of its own; together they take no more entries than one."""
    monkeypatch.setattr(laid, "MOST_ENTRIES", 40)
    target = shops(rule("open", "permit", "", "", direction=EGRESS, protocol=None))
    olds = []
    for number in range(12):
        listed = (rule(f"no{number}", "deny", "", "", 4000 + 37 * number, direction=EGRESS),)
        old = shops(*listed)
        neighbour = replace(old.tenants[0], acl=Acl((rule("in", "permit"),)))
        olds.append(replace(old, tenants=(neighbour, old.tenants[1])))
    back = withheld(olds, target)
    assert back
    numbers = narrow(target, back, highest_number=HIGHEST_NUMBER)
    rows = compile_host(numbers, domain="d", generation=1).flows.rows()
    laid_rules = {number for tenant in numbers.tenants for name, number in tenant.rule_numbers.items()
                  if name.startswith("withheld")}  # fmt: skip
    assert sum((row.cookie & 0xFFFFFFFF) in laid_rules for row in rows) <= 40 * len(back.rules)
    assert SHOP in back.rules

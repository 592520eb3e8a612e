"""Packet filters let through so many messages about path MTU a second, for each tenant; nothing else is limited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled_filter import check_spent_limits, limits
from enforce import contract_filters
from hypothesis import given
from strategies import policies

from orchestrator.compile.filters.filterlists import FilterList, filter_lists
from orchestrator.compile.filters.iptables import iptables_lines, iptables_texts
from orchestrator.compile.filters.limits import sayable_rate
from orchestrator.compile.filters.queuerows import FORWARD, queue_objects, read_row
from orchestrator.compile.nftables import nftables_script
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, Policy, ReturnTraffic
from orchestrator.policy.oracle import decide

POLICY = replace(contract_filters.policy(), return_traffic=ReturnTraffic.PATH_MTU, path_mtu_rate=7)


@given(policies(max_tenants=3, max_rules=6))
def test_beyond_the_limit_such_messages_are_denied_and_counted(policy: Policy) -> None:
    check_spent_limits(policy)


def test_the_law_meets_such_messages() -> None:
    assert check_spent_limits(POLICY) > 4


def test_a_filter_that_limits_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = FilterList.lines
    monkeypatch.setattr(FilterList, "lines", lambda self: (line._replace(limited=False) for line in lines(self)))
    with pytest.raises(AssertionError):
        check_spent_limits(POLICY)


def test_each_tenant_has_a_measure_of_its_own_of_the_domains_rate() -> None:
    script = nftables_script(POLICY)
    assert script.count("limit path_mtu_1 {\n\t\trate 7/second burst 7 packets\n") == 2
    assert script.count("limit path_mtu_2 {\n\t\trate 7/second burst 7 packets\n") == 1, "bank has no IPv6"
    for text in iptables_texts(POLICY).values():
        for tenant in (1, 2):
            wanted = f"--hashlimit-upto 7/sec --hashlimit-burst 7 --hashlimit-name path_mtu_{tenant}_7_7"
            assert text.count(wanted) == 1


def test_the_lines_told_are_those_of_the_texts() -> None:
    texts = iptables_texts(POLICY).values()
    lists = [each for each in filter_lists(POLICY) if each.tenant]
    counted = sum(text.count("--comment") + text.count("-j NFLOG") for text in texts)
    assert iptables_lines(lists) == counted - sum(text.count("operator-rule") for text in texts)


@pytest.mark.parametrize("returns", [ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT])
def test_other_settings_limit_nothing(returns: ReturnTraffic) -> None:
    other = replace(POLICY, return_traffic=returns)
    assert "path_mtu" not in nftables_script(other) + "".join(iptables_texts(other).values())
    assert check_spent_limits(other) == 0


def test_rows_of_a_classifier_say_their_limit() -> None:
    rows = [
        read_row(family, name, lines)
        for family, objects in queue_objects(POLICY).items()
        for name, lines in objects.items()
        if name != FORWARD
    ]
    held = {packet: [row for row in rows if row.limit and row.box.holds(packet)] for packet in policy_packets(POLICY)}
    for packet, limited in held.items():
        if limits(decide(POLICY, packet), packet):
            assert [row.limit for row in limited] == [7]
    assert {row.box.family for row in rows if row.limit} == set(Family)


def test_iptables_is_told_the_highest_rate_that_it_can_say() -> None:
    """It keeps whole microseconds between two packets."""
    for rate in range(1, HIGHEST_PATH_MTU_RATE + 1):
        said = sayable_rate(rate)
        assert 0.99 * rate <= said <= rate
        assert said == 1_000_000 // (1_000_000 // said)
        assert said == rate or rate > 1_000

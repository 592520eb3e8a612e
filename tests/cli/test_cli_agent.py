"""The agent's command line, as far as it goes without a service."""

from __future__ import annotations

import pytest
from command_line import aclflow


def test_a_flow_cache_needs_to_be_told_where() -> None:
    ended = aclflow("agent", "--flow-cache")
    assert ended.code == 2
    assert "--interface: a flow cache is at interfaces: name those that packets are forwarded between" in ended.err


def test_only_a_firewall_server_has_a_classifier() -> None:
    ended = aclflow("agent", "--classifier", "--interface", "left")
    assert ended.code == 2
    assert "--classifier: only a firewall server has one: --driver firewall-server" in ended.err


@pytest.mark.parametrize("driver", ["queue", "firewall-server"])
def test_lists_are_for_firewalls_that_a_cluster_may_stand_behind(driver: str) -> None:
    ended = aclflow("agent", "--driver", driver, "--lists", "lists.json")
    assert ended.code == 2
    assert "--lists: only nftables and iptables have a cluster's programs behind them" in ended.err

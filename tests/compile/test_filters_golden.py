"""A small policy as iptables and nftables text, in files that a reviewer can read; docs/firewall-vnf.md explains them.

`PYTHONPATH=.:tests python tests/compile/test_filters_golden.py` writes the files anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from compiled_filter import check_iptables, check_nftables

from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP

FIXTURES = Path(__file__).parent / "fixtures"
PERMIT, DENY = Action.PERMIT, Action.DENY


def of(*texts: str) -> Addresses:
    return Addresses(tuple(map(Prefix.parse, texts)))


def ports(low: int, high: int | None = None) -> tuple[PortRange, ...]:
    return (PortRange(low, low if high is None else high),)


def policy() -> Policy:
    """Tenant shop has few rules; tenant bank permits each of twelve branches a service of its own."""
    web = of("198.51.100.10", "2001:db8:100::10")
    shop = Acl(
        (
            Rule(RuleId("bad"), DENY, source=of("192.0.2.128/25")),
            Rule(RuleId("web"), PERMIT, protocol=TCP, destination=web, destination_ports=ports(80)),
            Rule(RuleId("ping"), PERMIT, protocol=ICMP, icmp_type=8),
            Rule(RuleId("late"), PERMIT, source=of("192.0.2.0/24"), destination=web, fragments=True),
            Rule(RuleId("mail"), DENY, Direction.EGRESS, protocol=TCP, destination_ports=ports(25)),
        )
    )
    bank = Acl(
        (
            *(
                Rule(
                    RuleId(f"branch{n}"),
                    PERMIT,
                    protocol=TCP,
                    source=of(f"192.0.2.{16 * n}/28"),
                    destination=of(f"203.0.113.{10 + n}"),
                    destination_ports=ports(8000 + n),
                )
                for n in range(12)
            ),
            Rule(RuleId("ntp"), PERMIT, protocol=UDP, destination_ports=ports(123)),
            Rule(RuleId("high"), PERMIT, protocol=UDP, source=of("192.0.2.0/24"), destination_ports=ports(1024, 65535)),
        )
    )
    lists = {"shop": (shop, ("198.51.100.0/24", "2001:db8:100::/48")), "bank": (bank, ("203.0.113.0/24",))}
    tenants = []
    for number, (name, (acl, prefixes)) in enumerate(lists.items(), 1):
        numbers: dict[str, int] = {rule.id: 100 * number + place for place, rule in enumerate(acl.rules)}
        tenants.append(Tenant(TenantId(name), number, tuple(map(Prefix.parse, prefixes)), acl, numbers))
    dns = Rule(RuleId("dns"), PERMIT, protocol=UDP, destination=of("192.0.2.53"), destination_ports=ports(53))
    return Policy(tuple(tenants), (dns,), {"dns": 1}, ReturnTraffic.ESTABLISHED)


def mixed() -> Policy:
    """The same where connections are tracked, but for those of shop's web server; rules look at no fragments."""
    made = policy()
    shop = made.tenants[0]
    whole = [replace(each, stateless=each.id == "web") for each in shop.acl.rules if not each.fragments]
    back = Rule(RuleId("back"), PERMIT, Direction.EGRESS, protocol=TCP, source_ports=ports(80), stateless=True)
    listed = replace(shop, acl=Acl((*whole, back)), rule_numbers={**shop.rule_numbers, back.id: 109})
    return replace(made, tenants=(listed, *made.tenants[1:]), return_traffic=ReturnTraffic.TRACKED)


def texts() -> Mapping[str, str]:
    """The compiled texts by file name."""
    iptables = iptables_texts(policy())
    return {
        "firewall.iptables": iptables[Family.IPV4],
        "firewall.ip6tables": iptables[Family.IPV6],
        "firewall.nft": nftables_script(policy()),
        "stateless.nft": nftables_script(mixed()),
    }


@pytest.mark.parametrize("name", ["firewall.iptables", "firewall.ip6tables", "firewall.nft", "stateless.nft"])
def test_the_texts_are_the_golden_files(name: str) -> None:
    assert texts()[name] == (FIXTURES / name).read_text()


def test_the_golden_files_do_what_the_oracle_says() -> None:
    check_iptables(policy())
    check_nftables(policy())


if __name__ == "__main__":
    for file_name, text in texts().items():
        (FIXTURES / file_name).write_text(text)

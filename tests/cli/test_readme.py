"""The first page says what committed runs measured, and leads to few other pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orchestrator.lab.scenes import POLICIES, SHIPPED
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.endpoints import list_of_endpoint
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Options

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINKS = 8

FIGURES = [
    ("control-plane", "one_host_one_rule_20k_ms", "{:.1f} ms |"),
    ("control-plane", "ovn_one_rule_20k_ms", "OVN as Neutron configures it: {:.0f} ms |"),
    ("control-plane", "one_rule_speedup_vs_ovn", "{:.0f} times faster |"),
    ("control-plane", "one_host_20k_s", "| {:.2f} s |"),
    ("control-plane", "ovn_20k_s", "the same OVN: {:.1f} s |"),
    ("control-plane", "bulk_speedup_vs_ovn", "{:.1f} times faster |"),
    ("control-plane", "prove_1000k_s", "| {:.1f} s | none"),
    ("control-plane", "findings_10k_s", "| {:.1f} s | none"),
    ("acl-size", "vnf_acl_pps_20000_vs_no_rules", "| {:.2f} | iptables"),
    ("acl-size", "iptables_last_pps_20000_vs_no_rules", "the last rule of a chain: {:.3f} |"),
    ("acl-size", "vnf_acl_vs_iptables_last_20000", "{:.0f} times |"),
]


@pytest.mark.parametrize(("suite", "figure", "written"), FIGURES)
def test_a_figure_is_that_of_the_committed_run(suite: str, figure: str, written: str) -> None:
    results = json.loads((ROOT / "docs" / "benchmarks" / suite / "results.json").read_text(encoding="utf-8"))
    median = results["figures"][figure]["median"]
    assert written.format(median) in README, f"{figure} is {median}"


def test_what_a_security_group_cannot_say_of_the_demonstration_is_counted() -> None:
    file, lists = SHIPPED["shop"]
    acl = read((POLICIES / file).read_bytes(), options=Options(lists=lists)).acl
    whole = {loss.line for loss in write(acl, "aws-sg").losses}
    machines = {
        "web1": ("198.51.100.10/32", "2001:db8:100::10/128"),
        "db1": ("198.51.100.20/32", "2001:db8:100::20/128"),
    }
    apart = [
        write(list_of_endpoint(acl, tuple(map(Prefix.parse, prefixes))), "aws-sg") for prefixes in machines.values()
    ]
    assert f"the {len(acl.rules)} rules of the demonstration's router" in README
    assert f"one AWS security group: {len(whole)} cannot be said | {len(apart[0].losses)}, a group a machine" in README
    assert len(apart[1].losses) == len(apart[0].losses)


def test_it_leads_to_few_pages() -> None:
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+)\)", README)
    assert 0 < len(links) <= MOST_LINKS
    assert len(set(links)) == len(links)

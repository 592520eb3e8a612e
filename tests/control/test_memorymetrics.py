"""The memory of domains that Prometheus is told: near to what a process grows by, and cheap to say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from served import served

from orchestrator.control.gauges import MemoryMetrics, estimate_bytes
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import AddressGroup, GroupName, Policy, Tenant, TenantId

ROOT = Path(__file__).parents[2]

GROWN = """
import gc, mmap, sys
from pathlib import Path
from orchestrator.bench.scale.scaledomain import DOMAIN, Size, open_world
from orchestrator.control.gauges import estimate_bytes
from orchestrator.interpreter import give_back

def read_held():
    gc.collect()
    give_back()
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

with open_world(Size(1, 1, 1, 0)) as world:
    world._start()
with open_world(Size(*map(int, sys.argv[1:]), 1, 0)) as world:
    before = read_held()
    world._start()
    grown = read_held() - before
    program, snapshot = world._publisher.program(DOMAIN), world._store.policies.all()[DOMAIN]
    print(estimate_bytes(snapshot.policy, len(program.blocks)) / grown)
"""


@pytest.mark.parametrize("size", [(300, 40), (12, 1000)])
def test_the_estimate_is_near_to_what_a_process_grows_by(size: tuple[int, int]) -> None:
    """In a process that starts with a domain of so many tenants and rules each, with nothing of it in memory before."""
    done = subprocess.run(
        [sys.executable, "-c", GROWN, *map(str, size)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 0.6 < float(done.stdout.splitlines()[-1]) < 1.6


def test_everything_that_takes_memory_counts() -> None:
    numbers = {f"r{number}": number for number in range(1, 11)}
    group = AddressGroup(GroupName("far"), tuple(Prefix.parse(f"10.9.0.{number}/32") for number in range(100)))
    bare = Tenant(TenantId("blue"), 1)
    with_rules = replace(bare, rule_numbers=numbers)
    with_group = replace(bare, acl=replace(bare.acl, groups={group.name: group}))
    found = [estimate_bytes(Policy((tenant,)), 0) for tenant in (bare, with_rules, with_group)]
    assert 0 < found[0] < min(found[1:])
    assert estimate_bytes(Policy((bare, bare)), 0) > found[0]
    assert estimate_bytes(Policy((bare,)), 50) > found[0]
    assert estimate_bytes(None, 50) > 0


def test_programs_of_all_tiers_and_policies_without_a_program_are_told() -> None:
    programs = [SimpleNamespace(domain=domain, blocks=range(rows)) for domain, rows in (("a", 7), ("b", 5), ("a", 3))]
    policies: Any = {"c": SimpleNamespace(policy=Policy((Tenant(TenantId("blue"), 1),)))}
    (gauge,) = MemoryMetrics(lambda: policies, lambda: programs).collect()  # type: ignore[arg-type,return-value]
    told = {sample.labels["domain"]: sample.value for sample in gauge.samples}
    assert told == {
        "a": estimate_bytes(None, 10),
        "b": estimate_bytes(None, 5),
        "c": estimate_bytes(policies["c"].policy, 0),
    }


def test_a_service_tells_the_memory_of_its_domains(tmp_path: Path) -> None:
    def read_bytes() -> dict[str, float]:
        lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith("aclflow_domain_memory_")]
        return {line.partition('"')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}

    with served(tmp_path) as here, here.client() as client, here.http() as http:
        client.domains.create("pop")
        client.tenants.create("blue", domain="pop", prefixes=[Prefix.parse("10.1.0.0/16")])
        before = read_bytes()
        rules = [{"id": f"r{number}", "action": "permit", "destination": f"10.1.0.{number}"} for number in range(200)]
        client.acls.put("blue", acl_from_json({"rules": rules}))
        after = read_bytes()
    assert before.keys() == after.keys() == {"pop"}
    assert after["pop"] > before["pop"] + 200 * 100
